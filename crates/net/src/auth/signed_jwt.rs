//! JSON Web Tokens (RFC 7519), signed with an RSA key as login servers accept them in place of a password (RFC 7523). No I/O.

use anyhow::{Context, Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

/// The lines around a key in PKCS #8.
const PEM_LABELS: [&str; 2] = ["-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"];

/// Signs `claims` with `key`, in the form PEM. `key_id` tells the server which key that is.
///
/// # Errors
/// The key is not an RSA key in that form. Its text is in no message.
pub fn sign_rs256(claims: &Value, key: &str, key_id: Option<&str>) -> Result<String> {
    let pair = parse_key(key)?;
    let mut header = json!({ "alg": "RS256", "typ": "JWT" });
    if let Some(key_id) = key_id {
        header["kid"] = key_id.into();
    }
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", encode(&header), encode(claims));
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
        .map_err(|_| anyhow!("the private key cannot sign"))?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

fn parse_key(pem: &str) -> Result<RsaKeyPair> {
    let [begin, end] = PEM_LABELS;
    let body = pem
        .trim()
        .strip_prefix(begin)
        .and_then(|rest| rest.strip_suffix(end))
        .context("the private key is not in the form PKCS #8")?;
    let text: String = body.split_whitespace().collect();
    let bytes = STANDARD.decode(text).map_err(|_| anyhow!("the private key is damaged"))?;
    RsaKeyPair::from_pkcs8(&bytes).map_err(|_| anyhow!("the private key is no RSA key"))
}

#[cfg(test)]
mod tests {
    use super::sign_rs256;
    use serde_json::json;

    /// A key of no one. Its signature below was made by google-auth and verified by OpenSSL.
    const KEY: &str = include_str!("signed_jwt_key.pem");

    #[test]
    fn a_token_is_that_of_the_vendors_client() {
        let claims = json!({ "iat": 1_767_323_045, "exp": 1_767_326_645, "iss": "me@p.iam.gserviceaccount.com",
                             "aud": "https://oauth2.googleapis.com/token", "scope": "s" });
        let token = sign_rs256(&claims, KEY, Some("key-1")).unwrap();
        assert_eq!(token, include_str!("signed_jwt_token.txt").trim());
    }

    #[test]
    fn other_keys_are_refused_without_their_text() {
        let check = |key: &str, expect: &str| {
            let error = sign_rs256(&json!({}), key, None).unwrap_err();
            assert_eq!(error.to_string(), expect);
        };
        check("", "the private key is not in the form PKCS #8");
        check(&KEY.replace("PRIVATE", "RSA PRIVATE"), "the private key is not in the form PKCS #8");
        check(&KEY.replace('M', "*"), "the private key is damaged");
        check(&KEY.replacen("MII", "MIJ", 1), "the private key is no RSA key");
    }
}
