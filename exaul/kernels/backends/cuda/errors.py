"""Translate errors of a device into errors that callers can act on."""

# CUDA errors after which nothing more can be computed in a process, by any library (CUDA driver API, "CUresult").
FATAL = (
    "ECC_UNCORRECTABLE",
    "CONTEXT_IS_DESTROYED",
    "ILLEGAL_ADDRESS",
    "LAUNCH_TIMEOUT",
    "ASSERT",
    "HARDWARE_STACK_ERROR",
    "ILLEGAL_INSTRUCTION",
    "MISALIGNED_ADDRESS",
    "INVALID_ADDRESS_SPACE",
    "INVALID_PC",
    "LAUNCH_FAILED",
)


class DeviceFailure(RuntimeError):
    """A kernel failed in a way that leaves the device unusable for the rest of this process."""


def translated(error: Exception, number: int) -> Exception:
    """Translate an error of numba-cuda, or of CUDA's own package, on the device of a number.

    Returns:
        A MemoryError if the device has too little memory, a DeviceFailure if this process can no longer use it, and
        otherwise the same error.
    """
    text = str(error)
    if "OUT_OF_MEMORY" in text:
        return MemoryError(f"CUDA device {number}: {error}")
    for name in FATAL:
        if f"CUDA_ERROR_{name}" in text:
            return DeviceFailure(
                f"CUDA device {number}: a kernel failed with CUDA_ERROR_{name}, and this process can no longer use "
                "the device; --backend dense runs without these kernels"
            )
    return error
