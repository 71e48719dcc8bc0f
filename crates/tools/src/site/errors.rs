//! The error pages of a site, as VCL: plain, in HTML or text, with a number by which the operator finds the request.

use std::fmt::Write as _;

/// A side of the cache, on which errors are made.
struct Side {
    sub: &'static str,
    request: &'static str,
    response: &'static str,
    /// A statement, and what visitors read before the status.
    retry: &'static str,
    advice: &'static str,
    /// The element of the status.
    element: &'static str,
}

const SIDES: [Side; 2] = [
    Side { sub: "vcl_synth", request: "req", response: "resp", retry: "", advice: "", element: "h1" },
    Side {
        sub: "vcl_backend_error",
        request: "bereq",
        response: "beresp",
        retry: "    set beresp.http.Retry-After = \"5\";\n",
        advice: "<h1>This page cannot be shown right now</h1>\n<p>Please try again in a minute.</p>\n",
        element: "p",
    },
];

const STYLE: &str = "body { font: 1.1em/1.6 system-ui, sans-serif }\nbody { max-width: 36em; margin: 18vh auto; padding: 0 1.5em }";

/// Writes the subroutines that make error pages.
pub fn write(text: &mut String) {
    text.push_str(
        "# Error pages. Browsers get HTML, others text. A reason may contain what a client has sent.\n",
    );
    for side in &SIDES {
        write_side(side, text);
    }
}

fn write_side(side: &Side, text: &mut String) {
    let Side { sub, request, response, retry, advice, element } = side;
    let _ = write!(
        text,
        "sub {sub} {{
    unset {response}.http.Server;
    set {response}.http.Cache-Control = \"no-store\";
    set {response}.http.X-Content-Type-Options = \"nosniff\";
{retry}    set {response}.http.X-Request-Id = {request}.xid;
    if ({request}.http.X-Request-Id ~ \"^[A-Za-z0-9._:/=+@-]{{1,100}}$\") {{
        set {response}.http.X-Request-Id = {request}.http.X-Request-Id;
    }}
    if ({request}.http.Accept !~ \"text/html\") {{
        set {response}.http.Content-Type = \"text/plain; charset=utf-8\";
        set {response}.body = \"Error \" + {response}.status + \" \" + {response}.reason + {{\"
Request \"}} + {response}.http.X-Request-Id + {{\"
\"}};
        return (deliver);
    }}
    set {response}.http.Content-Type = \"text/html; charset=utf-8\";
    set {response}.http.X-Reason = regsuball(regsuball({response}.reason, \"&\", \"&amp;\"), \"<\", \"&lt;\");
    set {response}.http.X-Reason = regsuball(regsuball({response}.http.X-Reason, \">\", \"&gt;\"), \"\\x22\", \"&quot;\");
    set {response}.body = {{\"<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<title>Error \"}} + {response}.status + {{\"</title>
<style>
{STYLE}
</style>
</head>
<body>
{advice}<{element}>Error \"}} + {response}.status + \": \" + {response}.http.X-Reason + {{\"</{element}>
<p>Request \"}} + {response}.http.X-Request-Id + {{\"</p>
</body>
</html>
\"}};
    unset {response}.http.X-Reason;
    return (deliver);
}}

"
    );
}
