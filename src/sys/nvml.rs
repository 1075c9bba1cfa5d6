//! NVML's functions for which nvml-wrapper has none.

use nvml_wrapper::Device;

/// The GPU instance and the compute instance of a MIG device; `None` of any other, and where the library cannot tell.
pub fn instance_of(device: &Device) -> Option<(u32, u32)> {
    let library = device.nvml().lib();
    let ask = [&library.nvmlDeviceGetGpuInstanceId, &library.nvmlDeviceGetComputeInstanceId];
    let mut ids = [0; 2];
    for (ask, id) in ask.into_iter().zip(&mut ids) {
        let ask = ask.as_ref().ok()?;
        // SAFETY: the library is loaded and initialised for as long as `device` borrows it, the handle is its own, and
        // `id` is an unsigned int to write to.
        if unsafe { ask(device.handle(), id) } != 0 {
            return None;
        }
    }
    Some((ids[0], ids[1]))
}
