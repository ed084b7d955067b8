"""The card's signatures, by two readers that are not ours: the official SDK, and RFC 8785 and JWS by hand.

Arguments: the server's URL, and what each reader should find: `good` or `bad`.
"""

import base64
import json
import sys
import urllib.request

from a2a.types import AgentCard
from a2a.utils.signing import SignatureVerificationError, create_signature_verifier
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils
from google.protobuf import json_format
from jwt import PyJWK
from jwt.exceptions import InvalidKeyError


def get(path):
    with urllib.request.urlopen(sys.argv[1] + path) as answer:
        return json.load(answer)


def decode(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def sdk_accepts(card, keys):
    """Whether the SDK's own verifier takes one of the signatures."""

    def provider(kid, jku):
        assert jku is None or jku.startswith("https://"), jku
        if kid not in keys:
            raise InvalidKeyError(kid)
        return PyJWK(keys[kid])

    verify = create_signature_verifier(provider, ["ES256", "EdDSA"])
    try:
        verify(json_format.ParseDict(card, AgentCard()))
    except SignatureVerificationError:
        return False
    return True


def by_hand(card, keys):
    """How many signatures hold over the card as it was served: sorted, without blanks, without signatures."""
    unsigned = {name: value for name, value in card.items() if name != "signatures"}
    # For cards without numbers and with names in ASCII this is RFC 8785.
    payload = json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    good = 0
    for signature in card["signatures"]:
        header = json.loads(decode(signature["protected"]))
        assert header["typ"] == "JOSE" and header["alg"] in ("ES256", "EdDSA"), header
        message = signature["protected"].encode() + b"." + encode(payload)
        bytes_ = decode(signature["signature"])
        key = keys[header["kid"]]
        try:
            if header["alg"] == "EdDSA":
                ed25519.Ed25519PublicKey.from_public_bytes(decode(key["x"])).verify(bytes_, message)
            else:
                x, y = (int.from_bytes(decode(key[name]), "big") for name in "xy")
                public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
                r, s = int.from_bytes(bytes_[:32], "big"), int.from_bytes(bytes_[32:], "big")
                public.verify(utils.encode_dss_signature(r, s), message, ec.ECDSA(hashes.SHA256()))
            good += 1
        except InvalidSignature:
            pass
    return good


def main():
    card = get("/.well-known/agent-card.json")
    keys = {key["kid"]: key for key in get("/.well-known/jwks.json")["keys"]}
    assert all("d" not in key for key in keys.values())
    sdk = "good" if sdk_accepts(card, keys) else "bad"
    assert sdk == sys.argv[2], f"the SDK says {sdk}"
    held = by_hand(card, keys)
    assert held == len(keys), f"{held} of the signatures hold over the served card, not {len(keys)}"
    card["description"] += "."
    assert not sdk_accepts(card, keys) and by_hand(card, keys) == 0, "a changed card was taken"
    print(f"{len(card['signatures'])} signatures")


main()
