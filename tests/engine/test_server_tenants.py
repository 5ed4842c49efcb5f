"""Which tenant name is recorded for what a client calls itself."""

from engine.server.tenant_aliases import MAX_UNKNOWN, OVERFLOW, TenantAliases
from kvpulse.identity import KeyedHashes

HASHES = KeyedHashes(b"k" * 32, {"acme-internal-7": "acme"})


def aliases() -> TenantAliases:
    return TenantAliases(HASHES, configured=["acme-internal-7"])


def test_a_configured_name_is_recorded_as_its_alias():
    assert aliases().resolve("acme-internal-7") == "acme"


def test_an_unknown_name_becomes_six_digits_of_a_keyed_hash():
    tenants = aliases()

    alias = tenants.resolve("jane@example.com")

    assert alias.startswith("t-")
    assert len(alias) == 8
    assert "jane" not in alias
    assert tenants.resolve("jane@example.com") == alias
    assert tenants.resolve("john@example.com") != alias


def test_nobody_in_particular_has_no_tenant():
    assert aliases().resolve("") == ""
    assert aliases().resolve(None) == ""


def test_a_name_with_half_a_character_is_taken():
    assert aliases().resolve("\ud800").startswith("t-")


def test_a_client_that_invents_names_cannot_fill_the_string_table():
    tenants = aliases()

    recorded = {tenants.resolve(f"user-{n}") for n in range(3 * MAX_UNKNOWN)}

    assert len(recorded) <= MAX_UNKNOWN + 1
    assert OVERFLOW in recorded
    assert tenants.resolve("acme-internal-7") == "acme"
