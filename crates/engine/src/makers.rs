//! The functions that preallocate memory for transactions.

use crate::client::Req;
use crate::fetch::FetchDriver;
use crate::services::Makers;
use crate::transaction_slot::TransactionSlot;

pub const MAKERS: Makers = Makers {
    request: |services, params| TransactionSlot::<Req>::new(services.log(), params).into_any(),
    fetch: |services, params| FetchDriver::new(services, params).into_any(),
};
