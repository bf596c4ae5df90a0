//! On what terms a batch is handed to lanes.

use super::receipt::Slip;
use super::reserve::Reservation;

/// On what terms a batch is handed to one lane; by default nobody waits and nothing is promised.
#[derive(Debug, Default)]
pub struct Terms<'a> {
    /// Who waits for it.
    pub slip: Option<&'a Slip>,
    /// The room that was kept for it.
    pub room: Option<Reservation>,
}
