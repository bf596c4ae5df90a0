//! Questions about dead letters, and what is to become of them.
//!
//! Lists are paged: `limit` (100 if not said) is [`LIMIT_MAX`] at the most, and `next` is what
//! `after` has to be for the next page. A purge has to say what it means, if only `"all": true`.

use super::State;
use super::answer::{Json, Refusal};
use crate::dead_letters::{Asked, List, Replayed, Shown};
use crate::lane::{DeadLetters, Selection, Sum};
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State as Extract};
use serde::Deserialize;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Sends the letters that are selected through the routing table again.
pub type Replay = Arc<dyn Fn(Selection) -> Replaying + Send + Sync>;

/// A replay under way.
pub type Replaying = Pin<Box<dyn Future<Output = Result<Replayed, String>> + Send>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    backend: Option<String>,
    reason: Option<String>,
    limit: Option<usize>,
    after: Option<i64>,
}

pub(super) async fn list(
    Extract(state): Extract<State>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<List>, Refusal> {
    let Query(Wanted { backend, reason, limit, after }) = wanted?;
    let which = Selection { backend, reason, ..Selection::default() };
    let limit = limit.unwrap_or(LIMIT).min(LIMIT_MAX);
    let page = ask(&state, move |letters| Ok(letters.page(&which, after, limit))).await?;
    Ok(Json(page.into()))
}

pub(super) async fn show(
    Extract(state): Extract<State>,
    id: Result<Path<i64>, PathRejection>,
) -> Result<Json<Shown>, Refusal> {
    let Path(id) = id?;
    letter(&state, None, id).await
}

pub(super) async fn show_of(
    Extract(state): Extract<State>,
    place: Result<Path<(String, i64)>, PathRejection>,
) -> Result<Json<Shown>, Refusal> {
    let Path((backend, id)) = place?;
    letter(&state, Some(backend), id).await
}

async fn letter(state: &State, backend: Option<String>, id: i64) -> Result<Json<Shown>, Refusal> {
    let found = ask(state, move |letters| letters.letter(backend.as_deref(), id)).await?;
    let letter =
        found.ok_or_else(|| Refusal::no_letter(format!("there is no dead letter {id}")))?;
    Ok(Json(letter.into()))
}

pub(super) async fn replay(
    Extract(state): Extract<State>,
    body: Bytes,
) -> Result<Json<Replayed>, Refusal> {
    let which = asked(&body)?.selection(state.clock.now()).map_err(Refusal::bad_request)?;
    (state.replay)(which).await.map(Json).map_err(Refusal::letters_unreadable)
}

pub(super) async fn purge(
    Extract(state): Extract<State>,
    body: Bytes,
) -> Result<Json<Sum>, Refusal> {
    let which = asked(&body)?.deliberate(state.clock.now()).map_err(Refusal::bad_request)?;
    Ok(Json(ask(&state, move |letters| letters.purge(&which)).await?))
}

fn asked(body: &[u8]) -> Result<Asked, Refusal> {
    if body.trim_ascii().is_empty() {
        return Ok(Asked::default());
    }
    serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))
}

async fn ask<T: Send + 'static>(
    state: &State,
    question: impl FnOnce(&DeadLetters) -> Result<T, String> + Send + 'static,
) -> Result<T, Refusal> {
    let letters = Arc::clone(&state.letters);
    let answer = tokio::task::spawn_blocking(move || question(&letters)).await;
    answer
        .map_err(|stopped| stopped.to_string())
        .and_then(|answer| answer)
        .map_err(Refusal::letters_unreadable)
}

const LIMIT: usize = 100;
/// A page of so many is some hundred kilobytes.
pub const LIMIT_MAX: usize = 1000;
