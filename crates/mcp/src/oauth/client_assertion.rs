//! Assertions that a client signs to authenticate at the token endpoint (`private_key_jwt`: RFC 7523, section 2.2), with a key for
//! ES256 or RS256.

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use nanobot_base::error::{Exit, fail};
use nanobot_os::secret::random_hex;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::json;

/// The type of the assertions, for the request.
pub(super) const TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Lifetime of an assertion, which is used at once, in seconds.
const LIFETIME_SECS: i64 = 300;

/// A private key.
enum SigningKey {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

impl SigningKey {
    /// Reads a key in PKCS #8.
    fn parse(pem: &str) -> Result<Self> {
        let invalid = || {
            fail(
                Exit::Config,
                "the client's key is not a private key in PKCS #8 for ES256 or RS256",
            )
        };
        let lines = pem.lines().map(str::trim);
        let body: String = lines.filter(|line| !line.starts_with("-----")).collect();
        let bytes = STANDARD.decode(body).map_err(|_| invalid())?;
        let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
        match EcdsaKeyPair::from_pkcs8(kind, &bytes, &SystemRandom::new()) {
            Ok(key) => Ok(Self::Es256(key)),
            Err(_) => match RsaKeyPair::from_pkcs8(&bytes) {
                Ok(key) => Ok(Self::Rs256(key)),
                Err(_) => Err(invalid()),
            },
        }
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Es256(_) => "ES256",
            Self::Rs256(_) => "RS256",
        }
    }

    fn sign(&self, text: &[u8]) -> Result<Vec<u8>> {
        let random = SystemRandom::new();
        let signature = match self {
            Self::Es256(key) => {
                key.sign(&random, text).map(|signature| signature.as_ref().to_vec())
            }
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature).map(|()| signature)
            }
        };
        signature.map_err(|_| fail(Exit::Failed, "signing with the client's key failed"))
    }
}

/// Makes an assertion of the client `id` for `audience`, signed with the key in `pem`. `now` is in Unix seconds.
///
/// # Errors
/// Status 78 if the key cannot be used.
pub(super) fn sign(pem: &str, id: &str, audience: &str, now: i64) -> Result<String> {
    let key = SigningKey::parse(pem)?;
    let header = json!({ "alg": key.algorithm(), "typ": "JWT" });
    let claims = json!({
        "iss": id, "sub": id, "aud": audience, "jti": random_hex(16), "iat": now, "exp": now + LIFETIME_SECS,
    });
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let text = [header, claims].map(|part| encode(part.to_string().as_bytes())).join(".");
    let signature = key.sign(text.as_bytes())?;
    Ok(format!("{text}.{}", encode(&signature)))
}

#[cfg(test)]
mod tests {
    use super::sign;
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use nanobot_base::error::{Exit, exit_for};
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
        UnparsedPublicKey,
    };
    use serde_json::Value;

    #[test]
    fn an_assertion_is_signed_by_the_key() {
        let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).unwrap();
        let body = STANDARD.encode(document.as_ref());
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n{}\n-----END PRIVATE KEY-----\n",
            &body[..64],
            &body[64..]
        );
        let assertion = sign(&pem, "me", "https://as.example", 1000).unwrap();
        let parts: Vec<&str> = assertion.split('.').collect();
        let read = |part: &str| -> Value {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
        };
        assert_eq!(read(parts[0])["alg"], "ES256");
        let claims = read(parts[1]);
        assert_eq!((&claims["iss"], &claims["sub"]), (&"me".into(), &"me".into()));
        assert_eq!(claims["aud"], "https://as.example");
        assert_eq!(claims["exp"], 1300);
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.public_key().as_ref());
        let text = format!("{}.{}", parts[0], parts[1]);
        let signature = URL_SAFE_NO_PAD.decode(parts[2]).unwrap();
        public.verify(text.as_bytes(), &signature).unwrap();
    }

    #[test]
    fn other_text_is_no_key() {
        for text in ["", "no key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"] {
            let error = sign(text, "me", "x", 0).unwrap_err();
            assert_eq!(exit_for(&error), Exit::Config, "{text}");
        }
    }
}
