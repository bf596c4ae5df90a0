//! Questions to the embedded store, asked on a blocking thread.

use super::State;
use super::answer::{Json, Refusal};
use crate::store::{Answer, Error, Question, Store};
use crate::when;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State as Extract};
use protocols::UnixNanos;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    name: Option<String>,
    since: Option<String>,
    until: Option<String>,
    limit: Option<u32>,
}

pub(super) async fn query(
    Extract(state): Extract<State>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Answer>, Refusal> {
    let Query(asked) = asked?;
    let question = asked.question(state.clock.now())?;
    ask(state, move |store| store.query(&question)).await
}

impl Asked {
    fn question(self, now: UnixNanos) -> Result<Question, Refusal> {
        let moment = |key: &str, text: Option<String>| {
            let moment = text.as_deref().map(|text| when::parse(text, now)).transpose();
            moment.map_err(|error| Refusal::bad_request(format!("{key}: {error}")))
        };
        Ok(Question {
            name: self.name.ok_or_else(|| Refusal::bad_request(WHICH))?,
            since: moment("since", self.since)?,
            until: moment("until", self.until)?,
            limit: self.limit,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Latest {
    series: u32,
    rows: u32,
}

impl Default for Latest {
    fn default() -> Self {
        Self { series: 12, rows: 60 }
    }
}

pub(super) async fn latest(
    Extract(state): Extract<State>,
    asked: Result<Query<Latest>, QueryRejection>,
) -> Result<Json<Answer>, Refusal> {
    let Query(Latest { series, rows }) = asked?;
    ask(state, move |store| {
        Ok(Answer { series: store.latest(series.min(LATEST_SERIES_MAX), rows)?, truncated: false })
    })
    .await
}

async fn ask<T: Send + 'static>(
    state: State,
    question: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
) -> Result<Json<T>, Refusal> {
    let answer = tokio::task::spawn_blocking(move || {
        Store::open_read_only(&state.data_dir).and_then(|store| question(&store))
    });
    match answer.await {
        Ok(answer) => answer.map(Json).map_err(refusal),
        Err(stopped) => Err(Refusal::unreadable(stopped.to_string())),
    }
}

fn refusal(error: Error) -> Refusal {
    match error {
        Error::Pattern(message) => Refusal::bad_request(message),
        error @ Error::Missing(_) => Refusal::no_store(error.to_string()),
        error => Refusal::unreadable(error.to_string()),
    }
}

/// Ample for a page.
const LATEST_SERIES_MAX: u32 = 100;
const WHICH: &str = "say of which series: ?name=demo.load, or ?name=demo* for all that begin so";
