//! Connections to origins do not use the descriptors that are kept in reserve.

use std::os::fd::RawFd;
use std::time::Duration;

use lacquer_net::descriptors::Need;
use lacquer_net::{ConnectError, ConnectStage, Endpoint, Opening};

use super::limits::Limits;
use crate::services::Services;

/// The first pause before a connection is opened again because its descriptor was reserved. Each one is twice as long as
/// the one before it, up to the last: 0.63 s in total.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_millis(320);

/// Connects to an endpoint. If the connection would use descriptors that are reserved, waits until others are free: those of
/// clients that have left soon are.
pub(super) async fn connect_unreserved<'e>(
    services: &Services,
    endpoint: &'e Endpoint,
    limits: &Limits,
) -> Result<Opening<'e>, ConnectError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let opening = endpoint.connect(limits.connect, limits.prefer_ipv6, limits.holddown).await?;
        match check_reserve(services, opening.raw_fd()) {
            Ok(()) => return Ok(opening),
            Err(e) if pause > LAST_PAUSE => return Err(e),
            Err(_) => drop(opening),
        }
        // Boxed: this is rare, and the future is large.
        Box::pin(tokio::time::sleep(pause)).await;
        pause *= 2;
    }
}

/// Fails if a connection uses descriptors that are reserved.
fn check_reserve(services: &Services, fd: RawFd) -> Result<(), ConnectError> {
    let marks = services.descriptors().marks(&services.params());
    if fd >= marks.crowded {
        let need = if fd >= marks.origins { Need::Urgent } else { Need::Soon };
        services.need_descriptors(need);
    }
    if fd >= marks.origins {
        return Err(ConnectError::new(ConnectStage::Connect, libc::EMFILE));
    }
    Ok(())
}
