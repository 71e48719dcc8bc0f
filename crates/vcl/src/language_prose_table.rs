//! The meaning of each subroutine, action, statement and function of the language, for the manual.

use crate::types::{Action, Method};

impl Method {
    /// Returns when it runs and what it is for.
    pub const fn prose(self) -> &'static str {
        match self {
            Method::Recv => {
                "Runs first, when a request has arrived. Decides whether the cache is searched, and for what."
            }
            Method::Pipe => "Runs before the connection becomes a tunnel to the backend.",
            Method::Pass => "Runs before a request is passed to the backend, past the cache.",
            Method::Hash => "Computes the key of the object, from the arguments of hash_data().",
            Method::Purge => "Runs after the objects of a key were purged.",
            Method::Miss => "Runs when the cache has no object for the request.",
            Method::Hit => "Runs when the cache has an object for the request.",
            Method::Deliver => {
                "Runs before a response is sent to the client. Changes are for this client only."
            }
            Method::Synth => {
                "Makes a response without a backend, after `return (synth(...))` and after failures."
            }
            Method::BackendFetch => "Runs before a request is sent to the backend.",
            Method::BackendRefresh => {
                "Runs when the backend has confirmed a stale object (304). Chooses the headers of the new object."
            }
            Method::BackendResponse => {
                "Runs when the backend has responded. Decides whether the response is stored, and for how long."
            }
            Method::BackendError => {
                "Makes a response when a fetch has failed, or after `return (error(...))`."
            }
            Method::Init => "Runs when the VCL is loaded. Creates objects of modules.",
            Method::Fini => "Runs when the VCL is discarded.",
        }
    }
}

impl Action {
    /// Returns its effect.
    pub const fn prose(self) -> &'static str {
        match self {
            Action::Abandon => {
                "Ends the fetch without a response. The client gets a 503 by vcl_synth, unless it was a background fetch."
            }
            Action::Deliver => {
                "Sends the response or stores it. In vcl_hit, delivers the object. In vcl_synth and \
                                vcl_backend_error, uses the response that was made."
            }
            Action::Error => "Continues with vcl_backend_error: `error(STATUS, REASON)`.",
            Action::Fail => {
                "Ends the transaction as after a mistake of the VCL: the client gets a 503. `fail(MESSAGE)` in vcl_init refuses the VCL."
            }
            Action::Fetch => "Sends the request to the backend.",
            Action::Hash => "Searches the cache.",
            Action::Lookup => "Ends the key, and searches the cache.",
            Action::Ok => "Continues.",
            Action::Pass => {
                "Passes the request to the backend. In vcl_backend_response, remembers for the object's lifetime that such \
                 requests are passed: `pass(DURATION)`."
            }
            Action::Pipe => "Connects client and backend, and passes bytes in both directions.",
            Action::Purge => "Removes all objects of the request's key, and continues with vcl_purge.",
            Action::Restart => {
                "Runs the request again from vcl_recv on, with its changes, at most max_restarts times."
            }
            Action::Retry => "Makes the fetch again from vcl_backend_fetch on, at most max_retries times.",
            Action::Synth => "Continues with vcl_synth: `synth(STATUS, REASON)`.",
            Action::Vcl => "Runs the request from vcl_recv on with another VCL: `vcl(LABEL)`.",
            Action::Beresp => "Uses the headers of the 304 alone.",
            Action::Merge => "Uses the headers of the stale object, replaced by those of the 304.",
            Action::ObjStale => "Uses the headers of the stale object alone.",
        }
    }
}

/// The statements and functions: how each is written, and its meaning.
pub const STATEMENTS: [(&str, &str); 11] = [
    (
        "set VARIABLE = EXPRESSION;",
        "Assigns a variable or header. `+=` appends to a text, or adds to a number.",
    ),
    ("unset VARIABLE;", "Removes a header, or the value of a variable that may have none."),
    (
        "if (CONDITION) { ... } elsif (CONDITION) { ... } else { ... }",
        "`elseif` and `else if` are other forms. Conditions use `==`, `!=`, `<`, `<=`, `>`, `>=`, `~` and `!~` (regular expressions and ACLs), `!`, `&&` and `||`.",
    ),
    ("call SUBROUTINE;", "Runs a subroutine. A `return` with an action in it ends the caller too."),
    (
        "return (ACTION);",
        "Ends the subroutine and chooses the next step. Without an action, ends a subroutine that was called.",
    ),
    ("new NAME = MODULE.OBJECT(...);", "Creates an object of a module. Only in vcl_init."),
    ("hash_data(STRING);", "Adds a text to the key. Only in vcl_hash."),
    (
        "ban(STRING);",
        "Adds a ban, as the management command does. `std.ban` also returns whether it is correct.",
    ),
    (
        "synthetic(STRING);",
        "Appends to the body of a response that VCL makes. `set resp.body = ...` is the newer form. Only in vcl_synth and vcl_backend_error.",
    ),
    (
        "regsub(STRING, REGEX, STRING)",
        "Returns a text in which the first match is replaced. `\\0` is the match, `\\1` to `\\9` are its groups.",
    ),
    ("regsuball(STRING, REGEX, STRING)", "The same for all matches."),
];
