//! Decisions about responses that are included in another (ESI): whether one is requested, and whether its body is
//! used.

/// Returns whether a response at this level may include others. The response to the client has level 0; below it
/// there may be `max_esi_depth` levels.
#[inline]
pub fn may_include(level: u32, max_depth: u32) -> bool {
    level < max_depth
}

/// The facts that determine the use of an included response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Included {
    /// Feature `esi_include_onerror`: a failed include ends the response, unless its `onerror` attribute allows it to
    /// continue.
    pub has_onerror: bool,
    pub status: u16,
    /// The response has a body to send, and it is not empty.
    pub has_body: bool,
}

/// The treatment of an included response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inclusion {
    /// The include has failed.
    Fail,
    /// There is no workspace to deliver it.
    Overflow,
    /// It adds no bytes.
    Nothing,
    Body,
}

/// Decides about the body of an included response. `has_room` allocates its filter in the workspace and returns
/// whether there was room.
pub fn inclusion(included: Included, has_room: impl FnOnce() -> bool) -> Inclusion {
    // VCL may use statuses above 999, of which only the last three digits count.
    let is_error = !matches!(included.status % 1000, 200 | 204);
    if included.has_onerror && is_error {
        Inclusion::Fail
    } else if !has_room() {
        Inclusion::Overflow
    } else if included.has_body {
        Inclusion::Body
    } else {
        Inclusion::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_bodies_are_used_unless_they_fail() {
        let table = [
            // esi_include_onerror, status, body, room
            ((false, 200, true, true), Inclusion::Body),
            ((false, 503, true, true), Inclusion::Body),
            ((true, 200, true, true), Inclusion::Body),
            ((true, 1200, true, true), Inclusion::Body),
            ((true, 204, false, true), Inclusion::Nothing),
            ((true, 404, true, true), Inclusion::Fail),
            ((true, 503, false, false), Inclusion::Fail),
            ((false, 200, false, true), Inclusion::Nothing),
            ((false, 200, true, false), Inclusion::Overflow),
        ];
        for ((has_onerror, status, has_body, has_room), expected) in table {
            let included = Included { has_onerror, status, has_body };
            assert_eq!(inclusion(included, || has_room), expected, "{included:?} {has_room}");
        }
    }

    #[test]
    fn depth_is_limited() {
        for ((level, max_depth), expected) in
            [((0, 5), true), ((4, 5), true), ((5, 5), false), ((0, 0), false)]
        {
            assert_eq!(may_include(level, max_depth), expected, "{level} of {max_depth}");
        }
    }
}
