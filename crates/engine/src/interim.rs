//! Interim responses of an origin, on their way from the fetch to the client.

/// An interim response: its status and its fields.
pub struct Interim {
    pub status: u16,
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}
