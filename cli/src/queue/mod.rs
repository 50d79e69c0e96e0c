//! `tenure queue`: what producers, workers and operators do with delay queues.

mod args;
mod command;
mod dead;
mod desk;
mod id;
mod lines;
mod program;
mod push;
mod show;
mod view;
mod work;
mod workshop;

pub(crate) use args::Queue;
pub(crate) use command::obey;
