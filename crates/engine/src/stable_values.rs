//! The promise that values which transactions hand to VCL outlast the call that returned them.
//!
//! While VCL runs, its context borrows the transaction, so that only the methods of its `Host` touch it. These keep the
//! promise as follows, and changes to them must keep it too.
//! - Strings in a workspace: an allocation is filled before it is handed out, and no method writes to it again. A
//!   rollback goes on in other memory (`Workspace::roll_back`) and leaves the old one until the workspace is reset,
//!   which happens between transactions.
//! - Strings and BLOBs of objects, sessions, storages, directors and of the outer request: the transaction holds a
//!   count of these or of what they belong to, and no method gives it up. They do not change once made.
//! - The digest and the origin's address lie in the transaction itself, and no method changes them.
#![allow(unsafe_code)]

use lacquer_vcl_runtime::StableValues;

use crate::client::Req;
use crate::fetch::Fetch;
use crate::init_host::InitHost;

// SAFETY: the module's comment gives the reasons.
unsafe impl StableValues for Req {}
// SAFETY: the module's comment gives the reasons.
unsafe impl StableValues for Fetch {}
// SAFETY: the pieces that make up its workspace are never changed once handed out, nor dropped before it; the rest
// belongs to what all threads share, of which it holds a count.
unsafe impl StableValues for InitHost {}
