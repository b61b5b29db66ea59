"""Metal: Apple's GPUs, through the Objective-C runtime and ctypes; macOS 13, iOS 16 and later."""
