//! The CUDA driver's functions that tell of devices and their memory, by cudarc, which loads the library at run time.
//!
//! For a process that does nothing else: a context takes device memory, and a driver may crash or hang whoever calls it.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cudarc::driver::{result, sys};

/// What is called of the library; one that lacks any of them is not used.
const NEEDED: [&str; 10] = [
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetUuid",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",
    "cuMemGetInfo_v2",
];

/// The driver, initialised.
#[derive(Clone, Copy, Debug)]
pub struct Driver(());

/// One device, as CUDA knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    pub name: Option<String>,
    pub uuid: Option<[u8; 16]>,
    pub pci: Option<String>,
    /// Whether it has the host's memory.
    pub is_integrated: bool,
}

/// A primary context, held until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Context(sys::CUcontext);

impl Driver {
    /// Loads the library, which the loader is to find as `libcuda.so` or by one of cudarc's other names, and
    /// initialises it. Makes no context. With a `path`, `libcuda.so` is to be a link to it: cudarc has no way to be
    /// told of one, and would take another where that cannot be loaded.
    ///
    /// # Errors
    ///
    /// Why there is none, or what it said.
    pub fn open(path: Option<&Path>) -> Result<Driver, String> {
        path.map_or(Ok(()), load)?;
        // SAFETY: libraries of that name are NVIDIA's, or stand in for it; what their initialisers do is theirs.
        if !unsafe { sys::is_culib_present() } {
            return Err("no libcuda.so.1 that the loader can load".to_owned());
        }
        // cudarc's calls panic where a symbol is missing.
        // SAFETY: it was loaded a moment ago; the symbols are looked up, and neither read nor called.
        let missing = NEEDED.iter().find(|name| unsafe { sys::culib().get::<*const u8>(name.as_bytes()).is_err() });
        if let Some(name) = missing {
            return Err(format!("libcuda.so.1 has no {name}"));
        }
        result::init().map_err(told)?;
        Ok(Driver(()))
    }

    /// How many devices there are.
    pub fn count(self) -> Result<i32, String> {
        result::device::get_count().map_err(told)
    }

    /// What a device is.
    pub fn describe(self, index: i32) -> Result<Described, String> {
        let device = result::device::get(index).map_err(told)?;
        let mut pci: [c_char; 32] = [0; 32];
        // SAFETY: the device is from cuDeviceGet; the text has room for as many bytes as are said, and its end is
        // looked for within them.
        let (pci_known, is_integrated) = unsafe {
            let integrated = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED;
            (
                sys::cuDeviceGetPCIBusId(pci.as_mut_ptr(), pci.len() as c_int, device).result().is_ok(),
                result::device::get_attribute(device, integrated).is_ok_and(|is| is != 0),
            )
        };
        let bytes: Vec<u8> = pci.iter().map(|&byte| byte as u8).take_while(|byte| *byte != 0).collect();
        Ok(Described {
            name: result::device::get_name(device).ok(),
            uuid: result::device::get_uuid(device).ok().map(|uuid| uuid.bytes.map(|byte| byte as u8)),
            pci: String::from_utf8(bytes).ok().filter(|_| pci_known),
            is_integrated,
        })
    }

    /// Makes a device's primary context, which takes some of its memory.
    pub fn retain(self, index: i32) -> Result<Context, String> {
        let device = result::device::get(index).map_err(told)?;
        // SAFETY: the device is from cuDeviceGet.
        unsafe { result::primary_ctx::retain(device) }.map(Context).map_err(told)
    }

    /// Bytes free, and of all, on the device of a context.
    pub fn memory(self, context: Context) -> Result<(u64, u64), String> {
        // SAFETY: the context was retained, and is released nowhere.
        unsafe { result::ctx::set_current(context.0) }.map_err(told)?;
        let (free, total) = result::mem_get_info().map_err(told)?;
        Ok((free as u64, total as u64))
    }
}

/// Loads a library by its path.
fn load(path: &Path) -> Result<(), String> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a C string; what the library's initialisers do is its own. The text of an error is the loader's, and is
    // read before the next call to it in this process of one thread.
    unsafe {
        if libc::dlopen(path.as_ptr(), libc::RTLD_NOW).is_null() {
            let why = libc::dlerror();
            let why = if why.is_null() { c"cannot be loaded" } else { CStr::from_ptr(why) };
            return Err(why.to_string_lossy().chars().take(300).collect());
        }
    }
    Ok(())
}

/// An error by its name: CUDA's own text needs one more call.
fn told(error: result::DriverError) -> String {
    format!("{:?}", error.0)
}
