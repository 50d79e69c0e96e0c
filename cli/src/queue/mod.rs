//! `tenure queue`: what producers, workers and operators do with delay queues.

mod args;
mod command;
mod context;
mod dead;
mod id;
mod lines;
mod program;
mod push;
mod shared;
mod show;
mod view;
mod work;

pub(crate) use args::Queue;
pub(crate) use command::obey;
