"""Metal's kernels on the CPU, watched: there is no Mac where this project is tested.

A source is rewritten a little (translate.py), compiled by clang++ against a `<metal_stdlib>` of
ours (include/), and run with a fiber a thread (runtime.cpp). Clang's own sanitizers and what it
calls at every load and store (memory.cpp) tell of addresses that are not aligned, indices out of
range, memory that the host did not declare, threads that miss a barrier, and threads that race.
Address spaces are looked at in a compilation apart, since clang's sanitizers see only plain
pointers.

What it cannot see: errors of Apple's compiler alone, fast math (the host turns it off), occupancy
and speed, residency, and hazards between dispatches, which the pretend runtime looks for
(tests/pretend_metal).

`gpu.py` makes it a `Gpu` for the parity tests; `mutate.py` asks how much these see.
"""
