"""Types of the compiled module that knows the CPU."""

compiled_for: tuple[str, ...]

def supports(instruction_set: str, /) -> bool: ...
