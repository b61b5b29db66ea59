"""The Vulkan host: implements `Gpu` with ctypes over the system's Vulkan library."""
