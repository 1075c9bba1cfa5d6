//! What a page lets a browser do: run the scripts and apply the styles that stand in it, show pictures that stand in
//! it, and nothing else. It fetches nothing and sends nothing.

use sha2::{Digest, Sha256};

/// The policy for these scripts and styles, for a `Content-Security-Policy`.
pub fn policy(scripts: &[&str], styles: &[&str]) -> String {
    let hashes = |texts: &[&str]| -> String {
        match texts {
            [] => " 'none'".to_owned(),
            texts => {
                texts.iter().map(|text| format!(" 'sha256-{}'", base64(&Sha256::digest(text.as_bytes())))).collect()
            }
        }
    };
    format!(
        "default-src 'none'; script-src{}; style-src{}; img-src data:; base-uri 'none'; form-action 'none'",
        hashes(scripts),
        hashes(styles)
    )
}

/// A picture as an address that holds all of it.
pub fn picture(svg: &str) -> String {
    format!("data:image/svg+xml;base64,{}", base64(svg.as_bytes()))
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfb]), "//77");
    }

    #[test]
    fn a_hash_is_that_of_the_text() {
        // printf %s 'alert(1)' | openssl dgst -sha256 -binary | base64
        let policy = policy(&["alert(1)"], &[]);
        assert!(policy.contains("script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"), "{policy}");
        assert!(policy.contains("style-src 'none';"), "{policy}");
    }
}
