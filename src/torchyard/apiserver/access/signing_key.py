"""The key that signs service account tokens: ES256, an elliptic-curve key on P-256 with SHA-256."""

from __future__ import annotations

import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

_COORDINATE = 32  # bytes of a coordinate, and of each half of a signature


class SigningKey:
    """A private key in PEM. Raises TypeError for a key of another kind."""

    def __init__(self, pem: bytes) -> None:
        key = serialization.load_pem_private_key(pem, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise TypeError("the token key must be an elliptic-curve key on P-256")
        self._key = key
        self._public = key.public_key()
        der = self._public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.digest = hashlib.sha256(der).digest()  # identifies the key in tokens

    @property
    def point(self) -> tuple[bytes, bytes]:
        """The coordinates of the public key."""
        numbers = self._public.public_numbers()
        return numbers.x.to_bytes(_COORDINATE, "big"), numbers.y.to_bytes(_COORDINATE, "big")

    def sign(self, data: bytes) -> bytes:
        """The signature as JSON Web Signature has it: both halves, without ASN.1."""
        r, s = decode_dss_signature(self._key.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(_COORDINATE, "big") + s.to_bytes(_COORDINATE, "big")

    def is_signature(self, signature: bytes, data: bytes) -> bool:
        if len(signature) != 2 * _COORDINATE:
            return False
        r, s = int.from_bytes(signature[:_COORDINATE], "big"), int.from_bytes(signature[_COORDINATE:], "big")
        try:
            self._public.verify(encode_dss_signature(r, s), data, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True
