//! Options of `lacquer run` from the environment, for containers: those with the names of the official image of Varnish,
//! and Lacquer's own, which have precedence. An option of the command line has precedence over both.

use crate::args::Values;

/// Adds the options that the environment sets and the command line does not. `variable` returns the value of a variable,
/// `exists` whether there is a file.
pub fn complete(
    mut values: Values,
    variable: impl Fn(&str) -> Option<String>,
    exists: impl Fn(&str) -> bool,
) -> Values {
    let variable = |name| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    if values.many("listen").is_empty() && values.many("https").is_empty() {
        let own = variable("LACQUER_LISTEN");
        let listens = own.or_else(|| {
            let port = |name, end| variable(name).map(|port| format!(":{port}{end}"));
            let ports = [port("VARNISH_HTTP_PORT", ""), port("VARNISH_PROXY_PORT", ",proxy")];
            let ports: Vec<String> = ports.into_iter().flatten().collect();
            (!ports.is_empty()).then(|| ports.join(" "))
        });
        for listen in listens.iter().flat_map(|listens| listens.split_whitespace()) {
            values.add("listen", listen);
        }
    }
    if values.one("storage").is_none()
        && let Some(size) = variable("LACQUER_STORAGE").or_else(|| variable("VARNISH_SIZE"))
    {
        values.add("storage", &size);
    }
    if values.one("name").is_none()
        && let Some(name) = variable("LACQUER_NAME")
    {
        values.add("name", &name);
    }
    if values.one("vcl").is_some() || values.one("backend").is_some() {
        return values;
    }
    let (vcl, backend) = (variable("LACQUER_VCL"), variable("LACQUER_BACKEND"));
    if vcl.is_some() || backend.is_some() {
        let both = [("vcl", vcl), ("backend", backend)];
        for (name, value) in both.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?))) {
            values.add(name, value);
        }
    } else if let Some(file) = variable("VARNISH_VCL_FILE").filter(|file| exists(file)) {
        // The variable names the place where a user may put a file; the image has none there.
        values.add("vcl", &file);
    } else if let Some(host) = variable("VARNISH_BACKEND_HOST") {
        let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
        let port = variable("VARNISH_BACKEND_PORT").unwrap_or_else(|| "80".to_owned());
        values.add("backend", &format!("{host}:{port}"));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the options that variables set, beside those of the command line.
    fn completed(given: &[(&'static str, &str)], variables: &[(&str, &str)], files: &[&str]) -> Vec<String> {
        let mut values = Values::default();
        for (name, value) in given {
            values.add(name, value);
        }
        let find = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        };
        let values = complete(values, find, |file| files.contains(&file));
        let names = ["listen", "storage", "name", "vcl", "backend"];
        names
            .iter()
            .flat_map(|name| values.many(name).iter().map(move |value| format!("{name} {value}")))
            .collect()
    }

    #[test]
    fn the_environment_completes_the_command_line() {
        let varnish = [
            ("VARNISH_SIZE", "100M"),
            ("VARNISH_HTTP_PORT", "80"),
            ("VARNISH_BACKEND_HOST", "app"),
            ("VARNISH_BACKEND_PORT", "3000"),
            ("VARNISH_VCL_FILE", "/etc/varnish/default.vcl"),
        ];
        assert_eq!(completed(&[], &[], &[]), [""; 0]);
        let ports = [("VARNISH_PROXY_PORT", "8443"), ("VARNISH_HTTP_PORT", "80")];
        assert_eq!(completed(&[], &ports, &[]), ["listen :80", "listen :8443,proxy"]);
        assert_eq!(completed(&[], &ports[..1], &[]), ["listen :8443,proxy"]);
        assert_eq!(completed(&[], &varnish, &[]), ["listen :80", "storage 100M", "backend app:3000"]);
        assert_eq!(
            completed(&[], &varnish, &["/etc/varnish/default.vcl"]),
            ["listen :80", "storage 100M", "vcl /etc/varnish/default.vcl"]
        );
        assert_eq!(
            completed(&[("listen", ":1"), ("storage", "1G"), ("backend", "b")], &varnish, &[]),
            ["listen :1", "storage 1G", "backend b"]
        );
        assert_eq!(completed(&[("https", "localhost")], &varnish, &[]), ["storage 100M", "backend app:3000"]);
        let own = [
            ("LACQUER_LISTEN", ":81  /run/socket"),
            ("LACQUER_STORAGE", "1G"),
            ("LACQUER_NAME", "/run/x"),
            ("LACQUER_BACKEND", "https://app.example"),
        ];
        assert_eq!(
            completed(&[], &[&own[..], &varnish[..]].concat(), &["/etc/varnish/default.vcl"]),
            ["listen :81", "listen /run/socket", "storage 1G", "name /run/x", "backend https://app.example"]
        );
        assert_eq!(completed(&[], &[("VARNISH_BACKEND_HOST", "::1")], &[]), ["backend [::1]:80"]);
        assert_eq!(completed(&[], &[("VARNISH_BACKEND_HOST", " "), ("VARNISH_SIZE", "")], &[]), [""; 0]);
    }
}
