//! The guarantee that values which transactions pass to VCL outlive the call that returned them.
//!
//! While VCL runs, its context borrows the transaction, so only the methods of its `Host` access it. The guarantee
//! rests on the following rules, which changes to these methods must keep.
//! - Strings in a workspace: an allocation is filled before it is returned, and no method writes to it again. A
//!   rollback continues in other memory (`Workspace::roll_back`) and leaves the old memory until the workspace is
//!   reset, which happens between transactions.
//! - Strings and BLOBs of objects, sessions, storages, directors and of the outer request: the transaction holds a
//!   reference count of these or of their owner, and no method releases it. They do not change after they were
//!   created.
//! - The digest and the origin's address are in the transaction itself. No method changes them; the digest is computed
//!   once, before it is returned.
#![allow(unsafe_code)]

use lacquer_vcl_runtime::StableValues;

use crate::client::Req;
use crate::fetch::Fetch;
use crate::init_host::InitHost;

// SAFETY: the module's comment gives the reasons.
unsafe impl StableValues for Req {}
// SAFETY: the module's comment gives the reasons.
unsafe impl StableValues for Fetch {}
// SAFETY: the pieces of its workspace are not changed after they were returned, and are dropped only with the host
// itself. All other values belong to state that all threads share, of which the host holds a reference count.
unsafe impl StableValues for InitHost {}
