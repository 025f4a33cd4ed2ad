"""Types of the compiled module that knows the CPU."""

known: tuple[str, ...]  # names of instruction sets
levels: dict[str, tuple[str, ...]]  # instruction sets that each level of the core uses, from the lowest level up
flags: dict[str, str]  # of the compiler, for each level

def supports(instruction_set: str, /) -> bool: ...
