"""Just as much of torch as tests/real/loaders/torch_cuda.py calls, on the stand-in's libcuda.so.1: memory is taken and given
back, and nothing is computed. So tests/on_gpu.sh can be run through where there is no card.
"""

import ctypes
import types

_driver = ctypes.CDLL("libcuda.so.1")
_context = ctypes.c_void_p()
_allocated = 0
_most = 0


def _call(name, *arguments):
    error = getattr(_driver, name)(*arguments)
    if error:
        raise RuntimeError(f"{name}: {error}")


def _begin():
    if not _context:
        _call("cuInit", 0)
        _call("cuDevicePrimaryCtxRetain", ctypes.byref(_context), 0)
        _call("cuCtxSetCurrent", _context)


class _Tensor:
    def __init__(self, size, on_device):
        global _allocated, _most
        self.size, self.address, self.bytes = size, None, None
        if on_device:
            _begin()
            self.address = ctypes.c_uint64()
            _call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(size))
            _allocated += size
            _most = max(_most, _allocated)
        else:
            self.bytes = bytearray(size)

    def __del__(self):
        global _allocated
        if self.address:
            _driver.cuMemFree_v2(self.address)
            _allocated -= self.size

    def __getitem__(self, piece):
        return self

    def copy_(self, source, non_blocking=False):
        # A byte of each page: all that a copy brings into memory.
        for at in range(0, len(source.bytes), 4096):
            source.bytes[at]

    def sum(self, dtype=None):
        return self

    def item(self):
        return 0

    def numpy(self):
        return self.bytes


def empty(size, dtype=None, device="cpu", pin_memory=False):
    return _Tensor(size, device == "cuda")


zeros = empty


def frombuffer(view, dtype=None):
    tensor = _Tensor(0, False)
    tensor.bytes = view
    return tensor


def _mem_get_info():
    _begin()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def _is_available():
    return _driver.cuInit(0) == 0


uint8 = int64 = None
__version__ = "of the stand-in"
version = types.SimpleNamespace(cuda="12.8")
cuda = types.SimpleNamespace(
    is_available=_is_available,
    synchronize=lambda: None,
    mem_get_info=_mem_get_info,
    get_device_properties=lambda device: types.SimpleNamespace(uuid="GPU-one"),
    memory_allocated=lambda: _allocated,
    memory_reserved=lambda: _allocated,
    max_memory_allocated=lambda: _most,
    max_memory_reserved=lambda: _most,
    empty_cache=lambda: None,
)
