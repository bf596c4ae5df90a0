//! What a connection says of its sender, before he says a word.

use serde::Deserialize;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// What is certain of whoever is at the other end; by default, nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// The address it comes from. Of datagrams anyone can write any.
    pub address: Option<IpAddr>,
    /// The user and the group of the process, at a stream in the file system.
    pub user: Option<(u32, u32)>,
    /// The names in the certificate that it has shown, if it was asked for one.
    pub names: Arc<[String]>,
}

/// Processes on this host, by user, by group, or by both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnixPeer {
    /// The number of the user.
    pub uid: Option<u32>,
    /// The number of the process's first group.
    pub gid: Option<u32>,
}

impl UnixPeer {
    /// Whether a process of that user and that group is one of them.
    pub fn is(&self, (uid, gid): (u32, u32)) -> bool {
        self.uid.is_none_or(|wanted| wanted == uid) && self.gid.is_none_or(|wanted| wanted == gid)
    }

    /// How many things it asks for.
    pub fn conditions(&self) -> usize {
        usize::from(self.uid.is_some()) + usize::from(self.gid.is_some())
    }
}

impl fmt::Display for UnixPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |name: &str, id: Option<u32>| id.map(|id| format!("{name} {id}"));
        let parts = [part("uid", self.uid), part("gid", self.gid)];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(" and "))
    }
}
