//! Bytes that Varnish takes from workspaces for its own structures. The same bytes are taken here, so that a size of a
//! workspace that was chosen for Varnish has the same effect.

use lacquer_http::Workspace;
use lacquer_params::Params;

/// A connection to an origin, from `workspace_backend`.
pub const CONNECTION: usize = 112;
/// A filter of a body, from the workspace of its transaction.
pub const FILTER: usize = 64;
/// A session before its first request, from `workspace_session`.
pub const SESSION: usize = 304;
/// The filters of an included response, from `workspace_client`.
pub const INCLUDE: usize = 56;

/// Takes the bytes. Returns false if the workspace does not have them.
pub fn charge(ws: &mut Workspace, bytes: usize) -> bool {
    ws.alloc(bytes).is_ok()
}

/// Returns a text for the log if the extensions of a PROXY header, or the entries that come after them, do not fit
/// into `workspace_session`.
pub fn proxy_header(params: &Params, extensions: usize) -> Option<&'static str> {
    const ADDRESSES: usize = 64;
    const TLV_HEAD: usize = 16;
    const TRANSPORT: usize = 8;
    let capacity = params.workspace_session as usize;
    let needed = (SESSION + ADDRESSES + TLV_HEAD + extensions).next_multiple_of(8);
    if needed > capacity {
        Some("insufficient workspace")
    } else if needed + TRANSPORT > capacity {
        Some("insufficient workspace (proto_priv)")
    } else {
        None
    }
}
