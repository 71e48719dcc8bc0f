//! Values of options that name a backend or a storage.

use crate::failure::Failure;

const DEFAULT_STORAGE: &str = "malloc,256M";

/// Converts a URL, address or path to `host:port`, `https://host:port` or a socket's path, as lacquerd's `-b` requires.
pub fn parse_backend(url: &str) -> Result<String, Failure> {
    let wrong = |why: &str| Failure::new(format_args!("--backend {url}: {why}"));
    if let Some(path) = url.strip_prefix("unix:").or_else(|| url.starts_with('/').then_some(url)) {
        return if path.starts_with('/') {
            Ok(path.to_owned())
        } else {
            Err(wrong("a socket needs an absolute path"))
        };
    }
    let (scheme, address) = match url.strip_prefix("https://") {
        Some(address) => ("https://", address),
        None => ("", url.strip_prefix("http://").unwrap_or(url)),
    };
    let default_port = if scheme.is_empty() { 80 } else { 443 };
    if let Some((scheme, _)) = address.split_once("://") {
        let hint = "only http:// and https:// addresses can be cached";
        return Err(wrong(&format!("{scheme} is not supported")).hint(hint));
    }
    let (address, path) = address.split_once('/').unwrap_or((address, ""));
    if !path.is_empty() {
        return Err(wrong("a backend is a server, without a path").hint(format_args!(
            "write --backend {}{address}; VCL can rewrite paths",
            if scheme.is_empty() { "http://" } else { scheme }
        )));
    }
    let is_port = |text: &str| text.parse::<u16>().is_ok_and(|p| p > 0);
    let bare = address.strip_prefix(':').unwrap_or(address);
    if is_port(bare) {
        return Ok(format!("{scheme}127.0.0.1:{bare}"));
    }
    match address.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && (!host.contains(':') || host.ends_with(']')) => {
            if is_port(port) {
                Ok(format!("{scheme}{address}"))
            } else {
                Err(wrong(&format!("`{port}` is not a port")))
            }
        }
        _ if address.is_empty() => Err(wrong("no server is given")),
        _ => Ok(format!("{scheme}{address}:{default_port}")),
    }
}

/// Converts a size to the argument of `-s` for memory. Returns any other text unchanged.
pub fn storage(given: Option<&str>) -> Result<String, Failure> {
    let Some(spec) = given else { return Ok(DEFAULT_STORAGE.to_owned()) };
    let digits = spec.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if spec.starts_with(|c: char| c.is_ascii_digit()) {
        let unit = spec[digits.len()..].to_ascii_uppercase();
        if digits.parse::<f64>().is_ok()
            && ["K", "M", "G", "T", "KB", "MB", "GB", "TB"].contains(&unit.as_str())
        {
            return Ok(format!("malloc,{digits}{unit}"));
        }
        return Err(Failure::new(format_args!("--storage {spec}: not a size")).hint("write 512M or 4G"));
    }
    let named = spec.split_once(',').map_or(spec, |(first, _)| first);
    let kind = named.rsplit_once('=').map_or(named, |(_, kind)| kind);
    // The daemon has its own words for `persistent`.
    if !["malloc", "default", "file", "disk", "debug", "persistent"].contains(&kind) {
        return Err(Failure::new(format_args!("--storage {spec}: there is no storage of the kind {kind}"))
            .hint("write a size for memory, such as 512M, or disk,FILE,size=10G"));
    }
    if kind == "disk"
        && let Some(bare) = spec.split(',').skip(2).find(|word| !word.is_empty() && !word.contains('='))
    {
        return Err(Failure::new(format_args!("--storage {spec}: {bare} has no name"))
            .hint(format!("write disk,FILE,size={bare}")));
    }
    Ok(spec.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_forms_of_backends_are_parsed() {
        for (given, expected) in [
            ("http://localhost:3000", "localhost:3000"),
            ("http://localhost:3000/", "localhost:3000"),
            ("app.example", "app.example:80"),
            ("3000", "127.0.0.1:3000"),
            (":3000", "127.0.0.1:3000"),
            ("http://[::1]:8080", "[::1]:8080"),
            ("http://[::1]", "[::1]:80"),
            ("unix:/run/app.sock", "/run/app.sock"),
            ("https://app.example/", "https://app.example:443"),
            ("https://app.example:8443", "https://app.example:8443"),
            ("https://[::1]", "https://[::1]:443"),
        ] {
            assert_eq!(parse_backend(given).as_deref(), Ok(expected), "{given}");
        }
        for wrong in ["https://", "ftp://a", "http://a/path", "a:b", "", "unix:app.sock"] {
            assert!(parse_backend(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn storage_sizes_are_parsed() {
        assert_eq!(storage(Some("2g")).as_deref(), Ok("malloc,2G"));
        assert_eq!(storage(Some("file,/tmp/x,1G")).as_deref(), Ok("file,/tmp/x,1G"));
        assert_eq!(storage(Some("s0=disk,/x,size=1G")).as_deref(), Ok("s0=disk,/x,size=1G"));
        assert!(storage(Some("12")).is_err());
        assert!(storage(Some("ram,1G")).is_err());
        assert!(storage(Some("disk,/x,20G")).is_err());
    }

    #[test]
    fn storages_in_the_pages_for_migration_are_accepted() {
        for page in [
            include_str!("../../../../../docs/migrate/nginx.md"),
            include_str!("../../../../../docs/migrate/squid.md"),
        ] {
            let values = page.split("storage = \"").skip(1).filter_map(|rest| rest.split('"').next());
            assert!(values.clone().any(|value| value.starts_with("disk,")));
            for value in values {
                assert!(storage(Some(value)).is_ok(), "{value}");
            }
        }
    }
}
