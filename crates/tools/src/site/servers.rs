//! Backends as VCL.

use std::fmt::Write as _;

use super::rules::Site;

/// The name of the only backend. Several have a number each.
const ONLY: &str = "default";

impl Site {
    /// Writes the backends, and the director of several.
    pub(super) fn write_backends(&self, text: &mut String) {
        if let Some(page) = &self.probe {
            let _ = write!(
                text,
                "# --probe: a server that does not answer this page with 200 gets no requests.\nprobe health {{\n    \
                 .url = \"{page}\";\n    .interval = 5s;\n    .timeout = 2s;\n}}\n\n"
            );
        }
        let names = self.names();
        for (name, backend) in names.iter().zip(&self.backends) {
            let _ = writeln!(text, "backend {name} {{");
            let line = match backend.strip_prefix("https://") {
                _ if backend.starts_with('/') => format!("    .path = \"{backend}\";\n"),
                None => format!("    .host = \"{backend}\";\n"),
                Some(address) => {
                    format!("    .host = \"{address}\";\n    .ssl = 1;\n    .ssl_verify_host = 1;\n")
                }
            };
            text.push_str(&line);
            if self.probe.is_some() {
                text.push_str("    .probe = health;\n");
            }
            text.push_str("}\n\n");
        }
        if let [_, _, ..] = &self.backends[..] {
            text.push_str(
                "import directors;\n\n# Several --backend: they receive the requests one after the other.\n",
            );
            text.push_str("sub vcl_init {\n    new servers = directors.round_robin();\n");
            for name in &names {
                let _ = writeln!(text, "    servers.add_backend({name});");
            }
            text.push_str("}\n\n");
        }
        self.write_host(text, &names);
    }

    fn names(&self) -> Vec<String> {
        match self.backends.len() {
            1 => vec![ONLY.to_owned()],
            count => (1..=count).map(|number| format!("server{number}")).collect(),
        }
    }

    /// Gives requests the name of a public server as `Host`: such a server refuses names that are not in its
    /// certificate.
    fn write_host(&self, text: &mut String, names: &[String]) {
        let hosts: Vec<_> =
            names.iter().zip(&self.backends).filter_map(|(name, b)| Some((name, public_host(b)?))).collect();
        if hosts.is_empty() {
            return;
        }
        text.push_str("# A server on the internet expects its own name.\nsub vcl_backend_fetch {\n");
        if names.len() == 1 {
            for (_, host) in &hosts {
                let set = format!("    set bereq.http.Host = \"{host}\";\n}}\n\n");
                let _ = write!(text, "{set}sub vcl_pipe {{\n{set}");
            }
            return;
        }
        text.push_str("    set bereq.backend = bereq.backend.resolve();\n");
        for (name, host) in &hosts {
            let set = format!("        set bereq.http.Host = \"{host}\";\n");
            let _ = write!(text, "    if (bereq.backend == {name}) {{\n{set}    }}\n");
        }
        text.push_str("}\n\n");
    }
}

fn public_host(backend: &str) -> Option<&str> {
    let address = backend.strip_prefix("https://")?;
    let name = address.strip_suffix(":443").unwrap_or(address);
    let bare = name.rsplit_once(':').map_or(name, |(host, _)| host);
    let is_public = bare.contains('.') && bare.parse::<std::net::IpAddr>().is_err() && !bare.starts_with('[');
    is_public.then_some(name)
}
