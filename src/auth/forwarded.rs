//! `x-forwarded-client-cert`: what a gateway says of the certificate of its own client.
//!
//! Elements are divided by commas, each of pairs `Key=Value` divided by semicolons; a value that
//! holds one of `,;=` stands in double quotes, where a backslash makes a quote plain. The last
//! element is the one that the gateway in front of this server has added. It is looked for from the
//! end, since what stands before it may be anybody's, quotes without an end included.

/// The name that the last element gives: as of a certificate itself, the first URI, else the first
/// DNS name, else the one common name of its subject. `None` if the header cannot be read.
pub(super) fn name(header: &str) -> Option<String> {
    let mut pairs = Vec::new();
    for pair in divided(last_element(header)?, &[';'])? {
        let (key, value) = pair.split_once('=')?;
        pairs.push((key.trim().to_ascii_lowercase(), unquoted(value.trim())?));
    }
    let first = |wanted: &str| {
        let mut of_key = pairs.iter().filter(|(key, value)| key == wanted && !value.is_empty());
        of_key.next().map(|(_, value)| *value)
    };
    let name = first("uri").or_else(|| first("dns"));
    name.map(|name| name.replace("\\\"", "\"")).or_else(|| common_name(first("subject")?))
}

/// What stands behind the last comma that is not quoted.
fn last_element(header: &str) -> Option<&str> {
    let bytes = header.as_bytes();
    let mut quoted = false;
    for (at, byte) in bytes.iter().enumerate().rev() {
        let slashes = bytes.get(..at)?.iter().rev().take_while(|byte| **byte == b'\\').count();
        match byte {
            b'"' if slashes.is_multiple_of(2) => quoted = !quoted,
            b',' if !quoted => return header.get(at + 1..),
            _ => {}
        }
    }
    Some(header)
}

/// `text` at each of `marks` that is not quoted; `None` if a quotation has no end.
fn divided<'a>(text: &'a str, marks: &[char]) -> Option<Vec<&'a str>> {
    let mut parts = Vec::new();
    let (mut from, mut quoted, mut plain) = (0, false, false);
    for (at, letter) in text.char_indices() {
        if plain {
            plain = false;
        } else if letter == '\\' && quoted {
            plain = true;
        } else if letter == '"' {
            quoted = !quoted;
        } else if !quoted && marks.contains(&letter) {
            parts.push(text.get(from..at)?);
            from = at + letter.len_utf8();
        }
    }
    parts.push(text.get(from..)?);
    (!quoted).then_some(parts)
}

/// A value without its quotes; `None` if it is quoted in part.
fn unquoted(value: &str) -> Option<&str> {
    match value.strip_prefix('"') {
        None => (!value.contains('"')).then_some(value),
        Some(rest) => {
            let inner = rest.strip_suffix('"')?;
            let bare = inner.replace("\\\\", "").replace("\\\"", "");
            (!bare.contains('"')).then_some(inner)
        }
    }
}

/// The one `CN` of a subject as RFC 2253 writes it; `None` if there are none or several.
fn common_name(subject: &str) -> Option<String> {
    let mut found = None;
    for part in relative_names(subject)? {
        let Some((key, value)) = part.split_once('=') else { continue };
        if key.trim().eq_ignore_ascii_case("cn") {
            if found.is_some() {
                return None;
            }
            found = Some(plain(value.trim())?);
        }
    }
    found.filter(|name| !name.is_empty())
}

/// A subject at each comma and plus that no backslash makes plain.
fn relative_names(subject: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let (mut from, mut plain) = (0, false);
    for (at, letter) in subject.char_indices() {
        if plain {
            plain = false;
        } else if letter == '\\' {
            plain = true;
        } else if matches!(letter, ',' | '+') {
            parts.push(subject.get(from..at)?);
            from = at + letter.len_utf8();
        }
    }
    parts.push(subject.get(from..)?);
    (!plain).then_some(parts)
}

/// A value of RFC 2253 without its backslashes: before two hex digits one stands for a byte.
fn plain(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let hex = rest.get(..2).and_then(|two| hex::decode(two).ok());
        let taken = match hex.as_deref() {
            Some([of_hex]) => {
                bytes.push(*of_hex);
                2
            }
            _ => {
                bytes.push(*rest.first()?);
                1
            }
        };
        rest = rest.get(taken..)?;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_element_names_the_client() {
        for (header, expected) in [
            ("By=spiffe://mesh/a2ad;Hash=ab;URI=spiffe://mesh/ann", "spiffe://mesh/ann"),
            ("Hash=ab;Subject=\"CN=x\";URI=;DNS=ann.example;DNS=b", "ann.example"),
            ("URI=spiffe://mesh/evil,By=x;URI=spiffe://mesh/ann", "spiffe://mesh/ann"),
            ("URI=spiffe://mesh/evil, URI=spiffe://mesh/ann", "spiffe://mesh/ann"),
            ("uri=a;URI=b", "a"),
            (r#"Subject="CN=ann,OU=x";Hash=ab"#, "ann"),
            (r#"Subject="OU=x,CN=a\,b";Hash=ab"#, "a,b"),
            (r#"Subject="OU=x;y,CN=a\C3\A4";Hash=ab"#, "a\u{e4}"),
            (r#"Subject="CN=\"a\",OU=x""#, r#""a""#),
            // What others have put before it cannot swallow it.
            (r#"URI=evil;X="\,By=x;Subject="CN=ann""#, "ann"),
            (r"URI=evil;X=\,By=x;URI=ann", "ann"),
            (r#"URI=evil;X=",By=x;URI=ann"#, "ann"),
            (r#"DNS="a\",URI=evil""#, r#"a",URI=evil"#),
            (r#"Subject="CN=x,URI=evil";DNS=d"#, "d"),
            ("URI=https://x/?a=b", "https://x/?a=b"),
        ] {
            assert_eq!(name(header).as_deref(), Some(expected), "{header}");
        }
    }

    #[test]
    fn what_names_nobody_or_cannot_be_read_is_nobody() {
        for header in [
            "",
            "Hash=ab",
            "URI",
            "URI=a,",
            "URI=\"a",
            "URI=a\"b\"",
            "URI=a,Hash=ab",
            "Subject=\"CN=a,CN=b\"",
            "Subject=\"OU=a\"",
            "Subject=\"CN=a\\\"",
            "Subject=\"CN=a,CN=b\\",
        ] {
            assert_eq!(name(header), None, "{header}");
        }
    }
}
