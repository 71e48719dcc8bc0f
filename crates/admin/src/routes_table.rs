//! The table of all requests that the admin listener serves. The server routes by it, and the OpenAPI document is made from
//! it.

use crate::guard::Access;
use crate::percent::decoded;

/// The effect of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Page,
    Alive,
    Ready,
    Metrics,
    OpenApi,
    Snapshot,
    Events,
    Counters,
    Log,
    Why,
    Purge,
    Tag,
    Ban,
    Bans,
    Vcls,
    VclLoad,
    VclShow,
    VclUse,
    VclDiscard,
    Params,
    ParamShow,
    ParamSet,
    ParamReset,
    Backends,
    BackendHealth,
    Storages,
}

/// The part of a request that contains a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Path,
    Query,
    Body,
}

/// The kind of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Flag,
    Number,
    Texts,
    /// A text, a number or a truth value, as parameters have them.
    Scalar,
}

#[derive(Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub place: Place,
    pub kind: Kind,
    pub is_required: bool,
    pub text: &'static str,
}

#[derive(Debug)]
pub struct Route {
    pub method: &'static str,
    /// The path; `{NAME}` matches one part.
    pub path: &'static str,
    pub action: Action,
    pub access: Access,
    pub media: &'static str,
    pub summary: &'static str,
    pub parameters: &'static [Parameter],
}

const fn in_path(name: &'static str, text: &'static str) -> Parameter {
    Parameter { name, place: Place::Path, kind: Kind::Text, is_required: true, text }
}

const fn in_query(name: &'static str, kind: Kind, text: &'static str) -> Parameter {
    Parameter { name, place: Place::Query, kind, is_required: false, text }
}

const fn in_body(name: &'static str, kind: Kind, text: &'static str) -> Parameter {
    Parameter { name, place: Place::Body, kind, is_required: true, text }
}

const fn optional(mut parameter: Parameter) -> Parameter {
    parameter.is_required = false;
    parameter
}

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";
const URL: Parameter = in_query("url", Kind::Text, "Only requests whose host and URL contain this text.");
const STATUS: Parameter = in_query("status", Kind::Text, "Only this status, or a class such as `5xx`.");
const MISSES: Parameter = in_query("misses", Kind::Flag, "Only requests that the cache did not serve.");
const VCL_NAME: Parameter = in_path("name", "The name of a VCL program.");
const PARAM_NAME: Parameter = in_path("name", "The name of a parameter.");

const fn open(path: &'static str, action: Action, media: &'static str, summary: &'static str) -> Route {
    Route { method: "GET", path, action, access: Access::Open, media, summary, parameters: &[] }
}

const fn route(
    method: &'static str,
    path: &'static str,
    action: Action,
    parameters: &'static [Parameter],
    summary: &'static str,
) -> Route {
    Route { method, path, action, access: Access::Token, media: JSON, summary, parameters }
}

impl Route {
    const fn with_media(mut self, media: &'static str) -> Route {
        self.media = media;
        self
    }

    const fn open_to_links(mut self) -> Route {
        self.access = Access::Page;
        self
    }

    pub fn has_body(&self) -> bool {
        self.parameters.iter().any(|parameter| parameter.place == Place::Body)
    }

    pub fn has_parameter(&self, name: &str) -> bool {
        self.parameters.iter().any(|parameter| parameter.name == name && parameter.place != Place::Path)
    }
}

/// All routes.
pub const ROUTES: &[Route] = &[
    open("/", Action::Page, "text/html", "The dashboard. It contains no data, and asks for the token.").open_to_links(),
    open("/healthz", Action::Alive, TEXT, "200 while the process of the admin listener lives."),
    open(
        "/readyz",
        Action::Ready,
        TEXT,
        "200 while the worker accepts requests and a VCL is in use; 503 with the reason otherwise, also while it drains.",
    ),
    route("GET", "/metrics", Action::Metrics, &[], "All counters for Prometheus, as text, OpenMetrics or messages by `Accept`.")
        .with_media(TEXT),
    route("GET", "/openapi.json", Action::OpenApi, &[], "This document."),
    route(
        "GET",
        "/api/v1/snapshot",
        Action::Snapshot,
        &[],
        "Traffic, latency, URLs, origins, storage and connections, as in `lacquer top --json`.",
    ),
    route(
        "GET",
        "/api/v1/events",
        Action::Events,
        &[in_query("log", Kind::Flag, "Also send requests of the log."), URL, STATUS, MISSES],
        "A stream of server-sent events: `snapshot` each second; `lists` of bans and VCL programs every five; `log` for each request; `dropped` with the number of \
         requests that the client did not receive because there were too many.",
    )
    .with_media("text/event-stream"),
    route(
        "GET",
        "/api/v1/counters",
        Action::Counters,
        &[in_query("name", Kind::Text, "Only counters whose name matches, such as `MAIN.cache_*`.")],
        "The counters by their names in `varnishstat`.",
    ),
    route(
        "GET",
        "/api/v1/log",
        Action::Log,
        &[in_query("limit", Kind::Number, "The number of requests, 50 without it, at most 10000."), URL, STATUS, MISSES],
        "The last requests in the log, the oldest first.",
    ),
    route(
        "POST",
        "/api/v1/why",
        Action::Why,
        &[
            in_body("url", Kind::Text, "The URL to request from this daemon."),
            optional(in_body("method", Kind::Text, "The method; GET without it.")),
            optional(in_body("headers", Kind::Texts, "Fields of the request: `Name: value`.")),
        ],
        "Sends a request to the daemon and explains why it was a hit, a miss or a pass, as `lacquer why` does.",
    ),
    route(
        "POST",
        "/api/v1/purge",
        Action::Purge,
        &[
            optional(in_body("url", Kind::Text, "The page; a path alone is that of every host.")),
            optional(in_body("pattern", Kind::Text, "Instead of `url`: a regular expression for the URL of pages.")),
            optional(in_body("host", Kind::Text, "The host of `pattern`; every host without it.")),
        ],
        "Bans the copies of a page, or of all pages that match: none is served any more. `removed` is null: the number is not known.",
    ),
    route(
        "POST",
        "/api/v1/tag",
        Action::Tag,
        &[
            in_body("tags", Kind::Texts, "Objects that have one of these tags are removed."),
            optional(in_body("soft", Kind::Flag, "Keep them for grace.")),
        ],
        "Removes objects by their tags.",
    ),
    route("GET", "/api/v1/bans", Action::Bans, &[], "The bans in effect."),
    route(
        "POST",
        "/api/v1/bans",
        Action::Ban,
        &[in_body("expression", Kind::Text, "Such as `req.url ~ ^/news/`.")],
        "Removes all objects for which an expression holds.",
    ),
    route("GET", "/api/v1/vcl", Action::Vcls, &[], "The VCL programs and labels."),
    route(
        "POST",
        "/api/v1/vcl",
        Action::VclLoad,
        &[
            in_body("name", Kind::Text, "The name of the new program."),
            in_body("text", Kind::Text, "The text of the program."),
            optional(in_body("use", Kind::Flag, "Use it for new requests.")),
        ],
        "Loads a VCL program.",
    ),
    route("GET", "/api/v1/vcl/{name}", Action::VclShow, &[VCL_NAME], "The text of a VCL program.").with_media(TEXT),
    route("POST", "/api/v1/vcl/{name}/use", Action::VclUse, &[VCL_NAME], "Uses a VCL program for new requests."),
    route("DELETE", "/api/v1/vcl/{name}", Action::VclDiscard, &[VCL_NAME], "Discards a VCL program."),
    route("GET", "/api/v1/params", Action::Params, &[], "The parameters."),
    route("GET", "/api/v1/params/{name}", Action::ParamShow, &[PARAM_NAME], "A parameter."),
    route(
        "PUT",
        "/api/v1/params/{name}",
        Action::ParamSet,
        &[PARAM_NAME, in_body("value", Kind::Scalar, "The new value.")],
        "Sets a parameter.",
    ),
    route("DELETE", "/api/v1/params/{name}", Action::ParamReset, &[PARAM_NAME], "Sets a parameter to its default."),
    route("GET", "/api/v1/backends", Action::Backends, &[], "The backends and their health."),
    route(
        "PUT",
        "/api/v1/backends/{pattern}/health",
        Action::BackendHealth,
        &[
            in_path("pattern", "The name of a backend, or a pattern such as `boot.*`."),
            in_body("health", Kind::Text, "`healthy`, `sick`, or `auto` to let the probe decide."),
        ],
        "Sets the health of backends.",
    ),
    route("GET", "/api/v1/storages", Action::Storages, &[], "The storages with their figures."),
];

/// A route, and the parts of the path that its variables match.
#[derive(Debug)]
pub struct Found {
    pub route: &'static Route,
    pub variables: Vec<String>,
}

/// Finds the route of a request. The error contains the methods of the path, or none if there is no such path.
pub fn find(method: &str, path: &str) -> Result<Found, Vec<&'static str>> {
    // The response to HEAD is that to GET without its body.
    let wanted = if method == "HEAD" { "GET" } else { method };
    let mut methods = Vec::new();
    for route in ROUTES {
        let Some(variables) = matched(route.path, path) else { continue };
        if route.method == wanted {
            return Ok(Found { route, variables });
        }
        methods.push(route.method);
    }
    Err(methods)
}

fn matched(pattern: &str, path: &str) -> Option<Vec<String>> {
    let mut variables = Vec::new();
    let mut parts = path.split('/');
    for wanted in pattern.split('/') {
        let part = parts.next()?;
        if wanted.starts_with('{') {
            variables.push(decoded(part, false).filter(|text| !text.is_empty())?);
        } else if wanted != part {
            return None;
        }
    }
    parts.next().is_none().then_some(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_one_route() {
        for route in ROUTES {
            let path = route.path.replace(['{', '}'], "");
            let found = find(route.method, &path).expect("its own path");
            assert_eq!((found.route.path, found.route.action), (route.path, route.action));
            let variables =
                route.parameters.iter().filter(|parameter| parameter.place == Place::Path).count();
            assert_eq!(variables, route.path.matches('{').count(), "{path}");
        }
        for path in ["", "//", "/metrics/", "/api/v1", "/api/v1/vcl/", "/api/v1/vcl/a/b", "/x", "/../healthz"]
        {
            assert_eq!(find("GET", path).err(), Some(Vec::new()), "{path}");
        }
        assert_eq!(find("POST", "/healthz").err(), Some(vec!["GET"]));
        assert!(find("HEAD", "/healthz").is_ok());
    }

    #[test]
    fn only_what_shows_nothing_is_open() {
        let open: Vec<&str> =
            ROUTES.iter().filter(|route| route.access != Access::Token).map(|route| route.path).collect();
        assert_eq!(open, ["/", "/healthz", "/readyz"]);
    }
}
