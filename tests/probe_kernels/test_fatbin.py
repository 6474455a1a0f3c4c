"""The reader of fat binaries: what it finds, and that no file makes it fail, wait or fill the memory."""

import ast
import io
import shutil
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.probe.kernels import fatbin
from bascule.probe.kernels.fatbin import KERNELS, Code, FatBinary, Library, read_library
from probe_kernels.elf_maker import ZSTD, cubin, elf, entry, fat_binary, library, nv_fatbin, simple

SCRIPT = Path(fatbin.__file__).read_text()


def read(data: bytes, size: int | None = None) -> Library:
    return read_library("x.so", io.BytesIO(data), len(data) if size is None else size)


def test_kinds_suffixes_and_the_isa_of_ptx_are_read_from_headers_of_any_length():
    one = fat_binary(
        entry("sm_90a", header=64),
        entry("sm_120f", header=96, flags=ZSTD),
        entry("sm_121", header=160),
        entry("compute_80", header=80),
        entry("sm_75", kind=8),
    )
    codes = (Code("cubin", 90, "a"), Code("cubin", 120, "f"), Code("cubin", 121), Code("ptx", 80, "", (8, 8)))
    assert read(library(one)) == Library("x.so", len(library(one)), (FatBinary(codes),))


@pytest.mark.parametrize("gap", [0, 8, 240, 70_000])
def test_padding_of_any_length_lies_between_fat_binaries(gap):
    found = read(library(simple("sm_80"), simple("sm_90a"), bytes(gap), gap=gap))
    assert [binary.codes for binary in found.binaries] == [(Code("cubin", 80),), (Code("cubin", 90, "a"),)]
    assert found.trouble == ""


def test_every_section_of_that_name_counts_and_the_prelinked_ones_do_not():
    data = elf(nv_fatbin(simple("sm_80")), (b"__nv_relfatbin", 1, simple("sm_70"), 0), nv_fatbin(simple("sm_120")))
    assert [binary.codes[0].sm for binary in read(data).binaries] == [80, 120]


@pytest.mark.parametrize("machine", [62, 183])
def test_x86_64_and_aarch64_are_alike(machine):
    assert read(library(simple("sm_80"), machine=machine)).binaries == (FatBinary((Code("cubin", 80),)),)


def test_more_sections_than_16_bits_count_stand_in_the_first_header():
    found = read(library(simple("sm_80"), many=True))
    assert (len(found.binaries), found.trouble) == (1, "")


def test_a_library_without_gpu_code_has_no_binaries_and_no_trouble():
    assert read(elf((b".text", 1, b"code", 0))) == Library("x.so", len(elf((b".text", 1, b"code", 0))))


def test_kernels_are_named_where_cubins_are_not_compressed():
    names = [b"_Z%d_kernel" % number for number in range(KERNELS + 3)]
    found = read(
        library(simple("sm_80", kernels=(b"_Z6marlin",)), simple("sm_90", kernels=tuple(names)), simple("sm_75"))
    )
    assert [binary.kernels for binary in found.binaries] == [
        ("_Z6marlin",),
        tuple(name.decode() for name in names[:KERNELS]),
        (),
    ]


def test_a_broken_cubin_costs_its_names_alone():
    broken = cubin(b"_Z6marlin")[:80] + b"\xff" * 400
    found = read(library(fat_binary(entry("sm_80", broken))))
    assert found.binaries == (FatBinary((Code("cubin", 80),)),)
    assert found.trouble == ""


WHOLE = library(simple("sm_80"), simple("sm_90a"))
AT = WHOLE.index(struct.pack("<I", fatbin.MAGIC))


@pytest.mark.parametrize(
    ("data", "trouble", "kept"),
    [
        (b"", "is no ELF file", 0),
        (b"version https://git-lfs.github.com/spec/v1\n" * 3, "is no ELF file", 0),
        (b"\x7fELF\1\1" + WHOLE[6:], "is no 64-bit little-endian ELF file", 0),
        (WHOLE[:200], "ends at byte 200, before", 0),
        (WHOLE[:40] + bytes(8) + WHOLE[48:], "has no section headers", 0),
        (WHOLE[:40] + b"\xff" * 8 + WHOLE[48:], "ends at byte", 0),
        (WHOLE[:60] + b"\xff\xff\xff\xff" + WHOLE[64:], "ends at byte", 0),
        (WHOLE[:AT] + b"garb" + WHOLE[AT + 4 :], f"no fat binary of a known kind at byte {AT}", 0),
        (WHOLE[: AT + 4] + b"\2" + WHOLE[AT + 5 :], f"no fat binary of a known kind at byte {AT}", 0),
        (WHOLE[: AT + 8] + b"\xff" * 8 + WHOLE[AT + 16 :], f"the fat binary at byte {AT} is longer", 0),
        (WHOLE[: AT + 20] + bytes(4) + WHOLE[AT + 24 :], f"the entry at byte {AT + 16} is longer", 0),
        (WHOLE[: AT + 16 + 28] + b"\xff\xff" + WHOLE[AT + 16 + 30 :], "names an architecture 65535", 0),
        (WHOLE[: AT + 144] + b"garbage!" + WHOLE[AT + 152 :], f"no fat binary of a known kind at byte {AT + 144}", 1),
    ],
)
def test_damage_is_told_and_what_was_read_before_it_is_kept(data, trouble, kept):
    found = read(data)
    assert found.trouble.startswith(trouble)
    assert len(found.binaries) == kept


def test_debug_information_without_the_code_is_no_library_without_code():
    data = elf((b".nv_fatbin", 8, simple("sm_80"), 0))
    assert "is compressed or elsewhere" in read(data).trouble


def test_a_file_shorter_than_its_size_and_one_that_fails_are_told():
    class Failing(io.BytesIO):
        def read(self, *_):
            raise OSError(5, "Input/output error")

    assert read(WHOLE[:100], len(WHOLE)).trouble == f"ends before byte {len(WHOLE)}, earlier than its size says"
    assert read_library("x", Failing(), 1000).trouble == "can't be read: Input/output error"


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_no_mutation_of_a_library_makes_it_raise(data):
    whole = bytearray(library(simple("sm_80", "compute_90", kernels=(b"_Z1a", b"_Z1b")), simple("sm_120a"), gap=24))
    for _ in range(data.draw(st.integers(1, 6))):
        where = data.draw(st.integers(0, len(whole) - 1))
        piece = data.draw(
            st.sampled_from([b"\0", b"\xff", b"\xff" * 8, b"\1", bytes(8), b"\x7fELF"]) | st.binary(max_size=8)
        )
        whole[where : where + len(piece)] = piece
    cut = data.draw(st.integers(0, len(whole)))
    for found in (read(bytes(whole)), read(bytes(whole[:cut]))):
        assert isinstance(found, Library)
        assert all(10 <= code.sm < 1000 for binary in found.binaries for code in binary.codes)


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_no_content_of_the_section_makes_it_raise(content):
    found = read(elf((b".nv_fatbin", 1, content, 0)))
    assert found.binaries or found.trouble or not content.strip(b"\0")


class Endless(io.RawIOBase):
    """A huge file: real bytes at its beginning, behind them a pattern again and again; it counts what is read."""

    def __init__(self, head: bytes, pattern: bytes) -> None:
        self.head, self.pattern, self.at, self.reads, self.bytes = head, pattern, 0, 0, 0

    def seek(self, offset, *_):
        self.at = offset
        return offset

    def read(self, length=-1):
        self.reads += 1
        self.bytes += length
        if self.at < len(self.head):
            return (self.head[self.at :] + bytes(length))[:length]
        turned = (self.at - len(self.head)) % len(self.pattern)
        again = length // len(self.pattern) + 1
        return (self.pattern[turned : turned + length] + self.pattern * again)[:length]


def endless(pattern: bytes, size: int) -> tuple[Endless, int]:
    """A library whose .nv_fatbin is this pattern, for so many bytes."""
    data = bytearray(library(b""))
    header = len(data) - 2 * 64  # before that of the names
    struct.pack_into("<QQ", data, header + 24, len(data), size)
    return Endless(bytes(data), pattern), len(data) + size


@pytest.mark.parametrize(
    "pattern",
    [bytes(8), simple(), fat_binary(entry("sm_80", b""), entry("sm_90", b"")), simple(*["sm_80"] * 9)],
    ids=["zeros", "empty fat binaries", "entries without bytes", "many entries"],
)
def test_a_section_of_4_tib_is_given_up_within_the_bounds(pattern):
    file, size = endless(pattern, 1 << 42)
    tracemalloc.start()
    found = read_library("x.so", file, size)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.trouble.startswith("too much to read")
    assert file.bytes <= fatbin.BYTES
    assert file.reads <= fatbin.READS
    assert peak < 64 * 1024 * 1024


def test_names_without_end_are_given_up_within_the_bounds():
    names = tuple(b"_Z%04d" % number + b"k" * 2000 for number in range(KERNELS))
    pattern = simple("sm_80", kernels=names)
    file, size = endless(pattern, len(pattern) * 20_000)
    found = read_library("x.so", file, size)
    assert (len(found.binaries), found.trouble) == (20_000, "")
    assert sum(len(name) for binary in found.binaries for name in binary.kernels) < fatbin.NAME_BYTES
    assert file.bytes < 2 * fatbin.NAME_BYTES


def test_a_library_of_300_mb_is_read_by_its_headers():
    pattern = fat_binary(entry("sm_80", bytes(3_000_000)), entry("sm_90a", bytes(3_000_000)))
    file, size = endless(pattern, 50 * len(pattern))
    found = read_library("big.so", file, size)
    assert size > 300_000_000
    assert (len(found.binaries), found.trouble) == (50, "")
    assert file.bytes < 100_000
    assert file.reads < 400


def test_its_text_is_python_3_8():
    ast.parse(SCRIPT, feature_version=(3, 8))


@pytest.mark.parametrize("python", [sys.executable, "python3.8", "python3.9"])
def test_as_a_script_it_tells_one_line_per_library(tmp_path, python):
    if not shutil.which(python) or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"no {python} that works here")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/a.so").write_bytes(library(simple("sm_120a", "compute_80", kernels=(b"_Z1k",))))
    (tmp_path / "pkg/b.so").write_bytes(b"text")
    (tmp_path / "pkg/folder.so").mkdir()
    words = [python, "-I", "-S", "-", str(tmp_path), "pkg/*.so", "pkg/a*", "none/*"]
    done = subprocess.run(words, input=SCRIPT, capture_output=True, text=True, check=True)
    a, b, end = done.stdout.splitlines()
    assert a.endswith('"binaries":[[[["cubin",120,"a",null],["ptx",80,"",[8,8]]],["_Z1k"]]]}')
    assert b == '{"path":"pkg/b.so","size":4,"trouble":"is no ELF file","binaries":[]}'
    assert end == '{"libraries": 2}'
