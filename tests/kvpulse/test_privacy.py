"""Nothing of the prompt is in the journal: no word of it, no run of its token ids."""

from array import array

from kvpulse.identity import KeyedHashes
from tests.kvpulse.factories_journal import busy_keyframe
from tests.kvpulse.test_rotation import fill_one_segment

WORD = "Zaphenathpaneah"
TOKENS = [48_611, 50_021, 47_777, 49_033, 45_989, 46_663, 47_057, 48_883] * 4


def test_no_planted_word_and_no_token_run_is_in_any_file(record):
    hashes = KeyedHashes(bytes(32))
    recorder = record(snapshot=busy_keyframe)
    tenant = recorder.tenant(hashes.tenant_alias(WORD))
    content = hashes.chain_hashes(TOKENS, 8, hashes.tenant_salt(WORD))
    recorder.arrive(
        1,
        len(TOKENS),
        16,
        tenant,
        request_hash=hashes.request_hash(f"request of {WORD}"),
        hashes=content,
    )
    recorder.admit(1, tenant)
    recorder.allocate(1, [1, 2, 3, 4], tenant)
    recorder.cache(1, [1, 2, 3, 4], content, tenant)
    fill_one_segment(recorder)
    recorder.close()

    planted = {
        "word": WORD.encode(),
        "word in capitals": WORD.upper().encode(),
        "ids of 16 bits": array("H", TOKENS[:3]).tobytes(),
        "ids of 32 bits": array("I", TOKENS[:2]).tobytes(),
        "ids of 64 bits": array("Q", TOKENS[:2]).tobytes(),
    }
    files = list(recorder.directory.iterdir())
    assert len(files) >= 4
    for path in files:
        data = path.read_bytes()
        assert [name for name, needle in planted.items() if needle in data] == []
    whole = b"".join(path.read_bytes() for path in files)
    assert array("Q", content[:1]).tobytes() in whole
