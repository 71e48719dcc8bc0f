//! The VCL of `lacquer run --https`: requests without TLS are redirected to one of the site's own names, whatever the
//! client writes into its request.

use std::fmt::Write as _;

/// The status by which the redirection is recognized in `vcl_synth`. Programs use statuses from 1000 for themselves.
const MARK: u32 = 10_308;
/// The seconds for which browsers use https only: a year.
const HSTS: u32 = 31_536_000;
const DEFAULT_PORT: u16 = 443;

/// The properties of the site.
pub struct Site {
    /// The names for redirections. Requests for other names are redirected to the first.
    pub hosts: Vec<String>,
    /// The port of https.
    pub port: Option<u16>,
    pub has_hsts: bool,
}

/// Returns a regular expression for a name.
fn escaped(host: &str) -> String {
    let escape =
        |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_string() } else { format!("\\{c}") };
    host.chars().map(escape).collect()
}

impl Site {
    /// Returns a whole VCL. `rest` contains the backends, and follows the redirection.
    pub fn vcl(&self, rest: &str) -> String {
        let mut text = format!(
            "vcl 4.1;\nimport tls;\n\nsub vcl_recv {{\n    if (!tls.is_tls()) {{\n        return (synth({MARK}));\n    }}\n    \
             set req.http.X-Forwarded-Proto = \"https\";\n}}\n\nsub vcl_synth {{\n    if (resp.status == {MARK}) {{\n"
        );
        text += "        set resp.status = 308;\n        set resp.reason = \"Permanent Redirect\";\n";
        let port =
            self.port.filter(|port| *port != DEFAULT_PORT).map(|port| format!(":{port}")).unwrap_or_default();
        for (at, host) in self.hosts.iter().enumerate() {
            let place = format!("set resp.http.Location = \"https://{host}{port}\";");
            if at == 0 {
                let _ = writeln!(text, "        {place}");
            } else {
                let pattern = escaped(host);
                let _ = writeln!(
                    text,
                    "        if (req.http.Host ~ \"(?i)^{pattern}(:[0-9]+)?$\") {{\n            {place}\n        }}"
                );
            }
        }
        // A target without a slash would continue the name.
        text += "        if (req.url ~ \"^/\") {\n            set resp.http.Location = resp.http.Location + req.url;\n        \
                 } else {\n            set resp.http.Location = resp.http.Location + \"/\";\n        }\n        \
                 return (deliver);\n    }\n";
        text += &self.hsts();
        text += "}\n";
        if self.has_hsts {
            let _ = write!(text, "\nsub vcl_deliver {{\n{}}}\n", self.hsts());
        }
        text + "\n" + rest
    }

    fn hsts(&self) -> String {
        if !self.has_hsts {
            return String::new();
        }
        format!(
            "    if (!resp.http.Strict-Transport-Security) {{\n        set resp.http.Strict-Transport-Security = \
             \"max-age={HSTS}\";\n    }}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_patterns() {
        assert_eq!(escaped("a-1.example"), "a-1\\.example");
        assert_eq!(escaped("[::1]"), "\\[\\:\\:1\\]");
        let site = Site { hosts: vec!["a".to_owned(), "b.c".to_owned()], port: Some(8443), has_hsts: true };
        let text = site.vcl("backend default none;\n");
        assert!(text.contains("if (req.http.Host ~ \"(?i)^b\\.c(:[0-9]+)?$\")"), "{text}");
        assert!(text.contains("\"https://a:8443\"") && text.ends_with("backend default none;\n"), "{text}");
        assert_eq!(text.matches("max-age=31536000").count(), 2);
        // The site's own field stays.
        assert_eq!(text.matches("if (!resp.http.Strict-Transport-Security)").count(), 2);
    }
}
