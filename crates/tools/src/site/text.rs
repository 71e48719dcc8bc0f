//! Writes the VCL of a site, with comments: users begin their own with it.

use std::fmt::Write as _;

use super::cookies::CookieNames;
use super::errors;
use super::rule::{Rule, Subject};
use super::rules::Site;

/// Why a client's directives have no effect.
const RELOAD: &str = "    # The rules decide how old a page may be, not a visitor's reload.\n    \
     unset req.http.Cache-Control;\n    unset req.http.Pragma;\n";
const TEXT_TYPES: &str = "(?i)^(text/|image/svg|image/x-icon|font/(ttf|otf)|application/([a-z.+-]*(json|xml)|javascript|\
     x-javascript|wasm|manifest))";
/// How long the decision not to cache a response is remembered.
const UNCACHEABLE: &str = "2m";

impl Site {
    /// Returns the VCL without its version, which precedes it.
    pub fn vcl(&self) -> String {
        let mut text = String::new();
        self.write_backends(&mut text);
        if !self.purgers.is_empty() {
            self.write_purgers(&mut text);
        }
        self.write_recv(&mut text);
        self.write_purge_replies(&mut text);
        self.write_response(&mut text);
        self.write_deliver(&mut text);
        errors::write(&mut text);
        text.truncate(text.trim_end().len());
        text + "\n"
    }

    fn is_cookieless(&self) -> bool {
        self.cookies.as_ref().is_some_and(CookieNames::is_all)
    }

    fn write_purgers(&self, text: &mut String) {
        if self.tags.is_some() {
            text.push_str("import xkey;\n");
        }
        text.push_str("import std;\n\n# --purge-from: the addresses that may purge.\nacl purgers {\n");
        for network in &self.purgers {
            let _ = writeln!(text, "    {}", network.vcl());
        }
        text.push_str("}\n\n");
    }

    fn write_recv(&self, text: &mut String) {
        let mut body = String::new();
        if self.backends.len() > 1 {
            body.push_str("    set req.backend_hint = servers.backend();\n");
        }
        if !self.purgers.is_empty() {
            self.write_purge(&mut body);
        }
        for pattern in &self.except {
            let _ = writeln!(body, "    # --except {}", pattern.given());
            let _ =
                writeln!(body, "    if (req.url ~ {}) {{\n        return (pass);\n    }}", pattern.quoted());
        }
        let is_ruled = !self.rules.is_empty() || self.cookies.is_some() || self.stale.is_some();
        if is_ruled {
            body.push_str(
                "    # Forms and other writes go to the web server, as do users with a password of HTTP.\n",
            );
            body.push_str(
                "    if (req.method != \"GET\" && req.method != \"HEAD\") {\n        return (pass);\n    }\n",
            );
            body.push_str("    if (req.http.Authorization) {\n        return (pass);\n    }\n");
        }
        if !self.rules.is_empty() || self.stale.is_some() {
            body.push_str(RELOAD);
        }
        self.write_cookies(&mut body);
        if !body.is_empty() {
            if self.drops_some() {
                text.push_str("import cookie;\nimport header;\n");
            }
            if self.drops_some() && self.purgers.is_empty() {
                text.push_str("import std;\n\n");
            } else if self.drops_some() {
                text.push('\n');
            }
            let _ = write!(text, "sub vcl_recv {{\n{body}}}\n\n");
        }
    }

    /// Returns whether only cookies with some names are dropped.
    fn drops_some(&self) -> bool {
        self.cookies.is_some() && !self.is_cookieless()
    }

    /// Drops cookies. The first rule for the URL counts, as it does for the response.
    fn write_cookies(&self, body: &mut String) {
        let mut word = "if";
        for rule in &self.rules {
            let Subject::Url(pattern) = &rule.subject else { continue };
            let _ = writeln!(body, "    {word} (req.url ~ {}) {{", pattern.quoted());
            if rule.time.is_zero() {
                body.push_str("        # Never cached: cookies remain.\n");
            } else {
                let _ = writeln!(body, "        # --cache {}: the same for all visitors.", rule.given);
                body.push_str("        unset req.http.Cookie;\n");
            }
            body.push_str("    }");
            word = " else if";
        }
        if word != "if" {
            body.push('\n');
        }
        if self.is_cookieless() {
            body.push_str("    # --ignore-cookies\n");
            body.push_str(&self.unless_never("req.url", "    unset req.http.Cookie;\n"));
        } else if let Some(cookies) = &self.cookies {
            let expression = cookies.expression();
            let mut part =
                String::from("    if (req.http.Cookie) {\n        std.collect(req.http.Cookie, \"; \");\n");
            let _ = write!(
                part,
                "        cookie.parse(req.http.Cookie);\n        cookie.filter_re(\"{expression}$\");\n        \
                 set req.http.Cookie = cookie.get_string();\n        if (req.http.Cookie == \"\") {{\n            \
                 unset req.http.Cookie;\n        }}\n    }}\n"
            );
            body.push_str("    # --ignore-cookies: drop cookies that the pages do not depend on.\n");
            body.push_str(&self.unless_never("req.url", &part));
        }
        if self.has_types() || self.drops_some() {
            body.push_str("    # A visitor with other cookies may get pages of their own.\n");
            body.push_str("    if (req.http.Cookie) {\n        return (pass);\n    }\n");
        }
    }

    /// Returns the statements, without effect on URLs that are never cached. `url` is the variable with the URL.
    fn unless_never(&self, url: &str, statements: &str) -> String {
        let mut chain = String::new();
        let mut has_never = false;
        for rule in &self.rules {
            let Subject::Url(pattern) = &rule.subject else { continue };
            if rule.time.is_zero() {
                has_never = true;
                chain.push_str(if chain.is_empty() { "" } else { " || " });
                let _ = write!(chain, "{url} ~ {}", pattern.quoted());
            }
        }
        if !has_never {
            return statements.to_owned();
        }
        let mut text = format!("    if (!({chain})) {{\n");
        for line in statements.lines() {
            let _ = writeln!(text, "    {line}");
        }
        text + "    }\n"
    }

    /// Returns whether a rule makes pages cacheable whatever their URL.
    fn has_types(&self) -> bool {
        self.rules.iter().any(|rule| !matches!(rule.subject, Subject::Url(_)) && !rule.time.is_zero())
    }

    fn write_purge(&self, body: &mut String) {
        body.push_str(
            "    if (req.method == \"PURGE\") {\n        if (req.http.Host) {\n            \
             # Pages are stored below lower-case names.\n            \
             set req.http.Host = req.http.Host.lower();\n        }\n        if (client.ip !~ purgers) {\n            \
             return (synth(403, \"This address may not purge\"));\n        }\n",
        );
        if let Some(header) = &self.tags {
            let _ = write!(
                body,
                "        # --tags: curl -X PURGE -H '{header}: TAG TAG' URL\n        if (req.http.{header}) {{\n            \
                 std.collect(req.http.{header}, \" \");\n            \
                 set req.http.X-Purged = xkey.purge(req.http.{header});\n            \
                 return (synth(200, \"Purged by tag: \" + req.http.X-Purged));\n        }}\n"
            );
        }
        body.push_str(
            "        # A URL with * removes all that match: curl -X PURGE 'http://HOST/news/*'\n        \
             if (req.url ~ \"[*]\") {\n            \
             if (req.url !~ \"^[A-Za-z0-9/_.~%=&:,;@!+?*-]+$\" || req.http.Host !~ \"^[A-Za-z0-9._:-]+$\") {\n                \
             return (synth(400, \"Only plain characters can be beside *\"));\n            }\n            \
             set req.http.X-Purged = regsuball(req.url, \"[.?+]\", \"[\\0]\");\n            \
             set req.http.X-Purged = \"^\" + regsuball(req.http.X-Purged, \"[*]\", \".*\") + \"$\";\n            \
             if (std.ban(\"req.http.host == \" + req.http.Host + \" && req.url ~ \" + req.http.X-Purged)) {\n                \
             return (synth(200, \"Purged all that match\"));\n            }\n            \
             return (synth(400, std.ban_error()));\n        }\n        return (purge);\n    }\n",
        );
    }

    fn write_purge_replies(&self, text: &mut String) {
        if self.purgers.is_empty() {
            return;
        }
        text.push_str(
            "sub vcl_synth {\n    if (req.method == \"PURGE\") {\n        \
             set resp.http.Content-Type = \"text/plain; charset=utf-8\";\n        \
             set resp.body = resp.reason + {\"\n\"};\n        return (deliver);\n    }\n}\n\n",
        );
    }

    fn write_response(&self, text: &mut String) {
        let mut body = String::new();
        if self.stale.is_some() {
            body.push_str(
                "    # --stale: an error does not replace a good copy.\n    \
                 if (bereq.is_bgfetch && beresp.status >= 500) {\n        return (abandon);\n    }\n",
            );
        }
        if let Some(header) = self.tags.as_ref().filter(|header| !header.eq_ignore_ascii_case("xkey")) {
            let _ = write!(
                body,
                "    # --tags {header}: blanks and commas separate tags.\n    std.collect(beresp.http.{header}, \" \");\n    \
                 set beresp.http.xkey = beresp.http.{header};\n"
            );
        }
        if self.is_compressed {
            let _ = write!(
                body,
                "    # --compress\n    if (!beresp.http.Content-Encoding && beresp.http.Content-Type ~ \"{TEXT_TYPES}\") {{\n        \
                 set beresp.do_gzip = true;\n    }}\n"
            );
        }
        let mut cached = String::new();
        self.write_set_cookie(&mut cached);
        if let Some(stale) = &self.stale {
            let _ = write!(
                cached,
                "    # Serve a copy for this time after its end, while it is fetched again or the server is down.\n    \
                 if (beresp.ttl > 0.1s && beresp.status < 400 && {}) {{\n        \
                 set beresp.grace = {};\n    }}\n",
                without_directives("no-cache|(must|proxy)-revalidate", "        "),
                stale.vcl()
            );
        }
        self.write_rules(&mut cached);
        if !cached.is_empty() {
            body.push_str("    if (bereq.uncacheable) {\n        return (deliver);\n    }\n");
            body.push_str(&cached);
        }
        if !body.is_empty() {
            let _ = write!(text, "sub vcl_backend_response {{\n{body}}}\n\n");
        }
        if self.stale.is_some() {
            text.push_str(
                "sub vcl_backend_error {\n    if (bereq.is_bgfetch) {\n        return (abandon);\n    }\n}\n\n",
            );
        }
    }

    fn write_set_cookie(&self, body: &mut String) {
        let Some(cookies) = &self.cookies else { return };
        body.push_str("    # A copy for all must not set a cookie of one visitor.\n");
        let statement = if self.is_cookieless() {
            "    unset beresp.http.Set-Cookie;\n".to_owned()
        } else {
            format!("    header.remove(beresp.http.Set-Cookie, \"{}=\");\n", cookies.expression())
        };
        body.push_str(&self.unless_never("bereq.url", &statement));
    }

    fn write_rules(&self, body: &mut String) {
        if self.rules.is_empty() {
            return;
        }
        body.push_str("    # --cache: the first rule that matches counts.\n    ");
        let mut word = "if";
        for rule in &self.rules {
            let _ = writeln!(body, "{word} ({}) {{\n        # {}", condition(rule), rule.given);
            if rule.time.is_zero() {
                let _ = writeln!(
                    body,
                    "        set beresp.uncacheable = true;\n        set beresp.ttl = {UNCACHEABLE};"
                );
            } else {
                if matches!(rule.subject, Subject::Url(_)) {
                    body.push_str("        unset beresp.http.Set-Cookie;\n");
                }
                let _ = writeln!(body, "        set beresp.ttl = {};", rule.time.vcl());
                // An error is not served after its end.
                let is_error = matches!(&rule.subject, Subject::Status(statuses) if statuses.have_errors());
                if let Some(stale) = self.stale.as_ref().filter(|_| !is_error) {
                    let _ = writeln!(body, "        set beresp.grace = {};", stale.vcl());
                }
            }
            body.push_str("        return (deliver);\n    }");
            word = " else if";
        }
        body.push('\n');
    }

    fn write_deliver(&self, text: &mut String) {
        let Some(header) = &self.tags else { return };
        let _ = write!(
            text,
            "sub vcl_deliver {{\n    # --tags are for the cache only.\n    unset resp.http.{header};\n"
        );
        if !header.eq_ignore_ascii_case("xkey") {
            text.push_str("    unset resp.http.xkey;\n");
        }
        text.push_str("}\n\n");
    }
}

/// Returns the condition that a response has none of these directives, in either of the fields that the feature rfc9111
/// obeys.
fn without_directives(expression: &str, indent: &str) -> String {
    let without = |field| format!("beresp.http.{field} !~ \"(?i)({expression})\"");
    format!("{} &&\n{indent}{}", without("Cache-Control"), without("CDN-Cache-Control"))
}

/// Returns the condition of a rule for a response. Only a rule that never caches applies to every one.
fn condition(rule: &Rule) -> String {
    let what = match &rule.subject {
        Subject::Url(pattern) => format!("bereq.url ~ {}", pattern.quoted()),
        Subject::Type(expression) => format!("beresp.http.Content-Type ~ \"{expression}\""),
        Subject::Status(statuses) => statuses.condition(),
    };
    if rule.time.is_zero() {
        return what;
    }
    let is_good = "beresp.status < 400 && beresp.status != 206";
    let for_all = "beresp.http.Vary !~ \"[*]\"";
    let is_public =
        format!("!beresp.http.Set-Cookie && {}", without_directives("private|no-store", "        "));
    match rule.subject {
        Subject::Url(_) => format!("{what} && {is_good} &&\n        {for_all}"),
        Subject::Type(_) => format!("{what} && {is_good} &&\n        {for_all} &&\n        {is_public}"),
        Subject::Status(_) => {
            format!("{what} &&\n        beresp.status != 206 && {for_all} &&\n        {is_public}")
        }
    }
}
