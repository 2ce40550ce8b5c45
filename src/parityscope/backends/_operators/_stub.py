"""A shared library of one function that jumps to an address which its loader writes into it.

ONNX Runtime takes operators of others from a shared library's `RegisterCustomOps` alone. The function that answers here is
made at run time, so the library only leads to it: a file of 5 KiB that holds one jump instruction and the place that it
jumps through, `slot`.

Source of the layout: System V Application Binary Interface, chapters 4 and 5, and its AMD64 supplement (the relocation-free
jump through memory, `jmp *slot(%rip)`); the dynamic section lies in the writable segment, because some versions of glibc
write addresses into it.
"""

from __future__ import annotations

import struct

__all__ = ["SLOT", "SYMBOL", "stub"]

SYMBOL, SLOT = b"RegisterCustomOps", b"slot"
_PAGE = 0x1000
_X86_64 = 62  # EM_X86_64
_READ_RUN, _READ_WRITE = 5, 6  # flags of segments
_LOAD, _DYNAMIC = 1, 2  # types of segments
_FUNCTION, _OBJECT = 0x12, 0x11  # global symbols of these types
_HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT = 4, 5, 6, 10, 11  # tags of the dynamic section
_HEADER, _SEGMENT, _ENTRY = 64, 56, 24  # bytes of the file's header, of a program header, of a symbol
_CODE = 0x800  # where the instruction lies, behind all tables of the first page


def stub() -> bytes:
    """The library for Linux on x86-64."""
    code = b"\xff\x25" + struct.pack("<i", _PAGE - _CODE - 6)  # jmp *slot(%rip), counted from behind its six bytes
    strings = b"\0" + SYMBOL + b"\0" + SLOT + b"\0"
    symbols = bytes(_ENTRY) + _symbol(1, _FUNCTION, _CODE, len(code)) + _symbol(2 + len(SYMBOL), _OBJECT, _PAGE, 8)
    at_symbols = _HEADER + 3 * _SEGMENT
    at_strings = at_symbols + len(symbols)
    at_hash = _aligned(at_strings + len(strings))
    hashed = struct.pack("<6I", 1, 3, 1, 0, 2, 0)  # one bucket of three symbols, a chain from 1 to 2
    tags = [
        (_HASH, at_hash),
        (_STRTAB, at_strings),
        (_SYMTAB, at_symbols),
        (_STRSZ, len(strings)),
        (_SYMENT, _ENTRY),
        (0, 0),
    ]
    dynamic = b"".join(struct.pack("<qQ", *tag) for tag in tags)
    data = bytes(8) + bytes(8) + dynamic
    segments = (
        _segment(_LOAD, _READ_RUN, 0, _CODE + len(code)),
        _segment(_LOAD, _READ_WRITE, _PAGE, len(data)),
        _segment(_DYNAMIC, _READ_WRITE, _PAGE + 16, len(dynamic)),
    )
    file = bytearray(_PAGE + len(data))
    for offset, part in (
        (0, _header(len(segments)) + b"".join(segments)),
        (at_symbols, symbols),
        (at_strings, strings),
        (at_hash, hashed),
        (_CODE, code),
        (_PAGE, data),
    ):
        file[offset : offset + len(part)] = part
    return bytes(file)


def _header(segments: int) -> bytes:
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)  # 64-bit, little-endian, version 1
    shared = 3  # ET_DYN
    sizes = (_HEADER, _SEGMENT, segments, 0, 0, 0)
    return identity + struct.pack("<HHIQQQI6H", shared, _X86_64, 1, 0, _HEADER, 0, 0, *sizes)


def _segment(kind: int, flags: int, at: int, size: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, 8 if kind == _DYNAMIC else _PAGE)


def _symbol(name: int, kind: int, at: int, size: int) -> bytes:
    return struct.pack("<IBBHQQ", name, kind, 0, 1, at, size)


def _aligned(offset: int) -> int:
    return (offset + 7) & ~7
