//! The functions that make memory for transactions before it is needed.

use crate::client::Req;
use crate::fetch::FetchDriver;
use crate::services::Makers;
use crate::transaction_slot::TransactionSlot;

pub const MAKERS: Makers = Makers {
    request: |services, params| TransactionSlot::<Req>::new(services.log(), params).hide(),
    fetch: |services, params| FetchDriver::new(services, params).hide(),
};
