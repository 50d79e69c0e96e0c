//! The command with real children, signals, terminals and servers. The complaints that users of `consul lock`, `etcdctl lock`,
//! `flock` and of wrappers for cron jobs have are tests here; each names the one that it stands for.

mod blocked;
mod end;
mod json;
mod loss;
mod measure;
mod minutes;
mod operate;
mod options;
mod output;
mod page;
mod queue;
mod servers;
mod support;
mod terminal;
mod tree;
mod waiting;
