//! Takes everything and keeps nothing: for load tests, and to drop on purpose what is counted.

use super::{Outcome, Payload, Ship, Shipping};
use serde::Deserialize;

/// What is particular to this kind of backend: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {}

/// Says that all went well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shipper;

impl Ship for Shipper {
    fn ship<'a>(&'a mut self, _payload: &'a Payload) -> Shipping<'a> {
        Box::pin(std::future::ready(Outcome::Delivered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocols::UnixNanos;

    #[tokio::test]
    async fn everything_is_taken() {
        let payload = Payload::new("x", 1, UnixNanos(0));
        assert_eq!(Shipper.ship(&payload).await, Outcome::Delivered);
    }
}
