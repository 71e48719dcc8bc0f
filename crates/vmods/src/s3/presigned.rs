//! URLs that contain their signature.

use super::canonical::{self, encode};
use super::signature::{ALGORITHM, Canonical, Keys, Scope, Signing, Timestamp, UNSIGNED};

/// The longest validity of a URL in seconds, which services accept.
const LONGEST: f64 = 7.0 * 86400.0;

/// The parts of an absolute URL.
struct Parts<'u> {
    /// The scheme with `://`.
    scheme: &'u [u8],
    /// The host, with the port if it is not that of the scheme.
    host: &'u [u8],
    target: &'u [u8],
}

fn parts(url: &[u8]) -> Result<Parts<'_>, String> {
    let schemes: [(&[u8], &[u8]); 2] = [(b"https://", b":443"), (b"http://", b":80")];
    let found = schemes.iter().find(|(scheme, _)| url.starts_with(scheme));
    let (scheme, port) = found.ok_or("the URL does not begin with https:// or http://")?;
    let rest = &url[scheme.len()..];
    let end = rest.iter().position(|b| b"/?#".contains(b)).unwrap_or(rest.len());
    let (host, target) = rest.split_at(end);
    let host = host.strip_suffix(*port).unwrap_or(host);
    if host.is_empty() || !host.iter().all(|b| b.is_ascii_alphanumeric() || b".-_:[]".contains(b)) {
        return Err("the URL has no valid host".to_owned());
    }
    Ok(Parts { scheme: &url[..scheme.len()], host, target })
}

/// Returns the URL with a signature for the method, which is valid for some seconds.
pub(super) fn presign(
    (keys, scope): (&Keys, &Scope),
    method: &[u8],
    url: &[u8],
    expires: f64,
    now: f64,
) -> Result<Vec<u8>, String> {
    if method.is_empty() || !method.iter().all(u8::is_ascii_uppercase) {
        return Err("the method is not one in upper case".to_owned());
    }
    if !(1.0..=LONGEST).contains(&expires) {
        return Err(format!("a URL can be valid for 1 second to 7 days, not for {expires:.0} seconds"));
    }
    let Parts { scheme, host, target } = parts(url)?;
    let (path, query) = canonical::split(target);
    let own = canonical::query(query)?;
    if own.split(|&b| b == b'&').any(|pair| pair.to_ascii_lowercase().starts_with(b"x-amz-")) {
        return Err("the URL has a parameter X-Amz- already".to_owned());
    }
    let signing = Signing { keys, scope, time: Timestamp::of(now)? };
    let mut parameters = vec![
        ("X-Amz-Algorithm", ALGORITHM.to_owned()),
        ("X-Amz-Credential", signing.credential()),
        ("X-Amz-Date", signing.time.text().to_owned()),
        ("X-Amz-Expires", format!("{expires:.0}")),
        ("X-Amz-SignedHeaders", "host".to_owned()),
    ];
    if let Some(token) = &keys.token {
        parameters.push(("X-Amz-Security-Token", token.clone()));
    }
    let mut all = vec![own];
    all.extend(
        parameters.iter().map(|(name, value)| [name.as_bytes(), &encode(value.as_bytes(), b"")].join(&b'=')),
    );
    let all = canonical::query(&all.join(&b'&'))?;
    let canonical_path = canonical::path_for(scope, path)?;
    let headers = [("host".to_owned(), host.to_ascii_lowercase())];
    let request =
        Canonical { method, path: &canonical_path, query: &all, headers: &headers, payload: UNSIGNED };
    let signature = signing.signature(&request);
    let sent = canonical::path(path)?;
    Ok([scheme, host, &sent, b"?", &all, b"&X-Amz-Signature=", signature.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: f64 = 1_369_353_600.0;

    fn signed(method: &str, url: &str, expires: f64, token: &[u8]) -> String {
        let secret = b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        let keys = Keys::new(b"AKIAIOSFODNN7EXAMPLE", secret, token).expect("valid keys");
        let scope = Scope::new(b"us-east-1", b"s3").expect("a valid scope");
        let url = presign((&keys, &scope), method.as_bytes(), url.as_bytes(), expires, DAY);
        url.map_or_else(|why| format!("error: {why}"), |url| String::from_utf8(url).expect("ASCII"))
    }

    /// The example of Amazon's documentation, and the same URL in other forms.
    #[test]
    fn a_published_url_has_its_published_signature() {
        let expected = "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
            &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
            &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
            &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        for url in [
            "https://examplebucket.s3.amazonaws.com/test.txt",
            "https://examplebucket.s3.amazonaws.com:443/test.txt?",
            "https://examplebucket.s3.amazonaws.com/%74est.txt",
        ] {
            assert_eq!(signed("GET", url, 86400.0, b""), expected, "{url}");
        }
    }

    #[test]
    fn parameters_of_the_url_and_a_token_are_signed() {
        let url = signed("GET", "http://h:9000?b=1 &a".replace(' ', "%20").as_str(), 60.0, b"t+/");
        assert!(url.starts_with("http://h:9000/?X-Amz-Algorithm="), "{url}");
        assert!(url.contains("&X-Amz-Security-Token=t%2B%2F&"), "{url}");
        assert!(url.contains("&a=&b=1%20&X-Amz-Signature="), "{url}");
    }

    #[test]
    fn urls_that_cannot_be_signed_fail() {
        let range = "a URL can be valid for 1 second to 7 days";
        for (method, url, expires, why) in [
            ("GET", "ftp://h/", 60.0, "the URL does not begin with https:// or http://"),
            ("GET", "/path", 60.0, "the URL does not begin with https:// or http://"),
            ("GET", "https:///path", 60.0, "the URL has no valid host"),
            ("GET", "https://user@h/", 60.0, "the URL has no valid host"),
            ("GET", "https://h\r\nX: y/", 60.0, "the URL has no valid host"),
            ("GET", "https://h/a\nb", 60.0, "the URL contains the byte 0x0a"),
            ("GET", "https://h/#f", 60.0, "the URL contains the byte 0x23"),
            ("GET", "https://h#f", 60.0, "the URL has no path that begins with /"),
            ("GET", "https://h/?x-AMZ-date=1", 60.0, "the URL has a parameter X-Amz- already"),
            ("GET", "https://h/?%58-Amz-Signature=1", 60.0, "the URL has a parameter X-Amz- already"),
            ("get", "https://h/", 60.0, "the method is not one in upper case"),
            ("", "https://h/", 60.0, "the method is not one in upper case"),
            ("GET", "https://h/", 0.5, range),
            ("GET", "https://h/", -5.0, range),
            ("GET", "https://h/", f64::NAN, range),
            ("GET", "https://h/", LONGEST + 1.0, range),
        ] {
            let found = signed(method, url, expires, b"");
            assert!(found.starts_with(&format!("error: {why}")), "{url}: {found}");
        }
    }
}
