//! Wrong decisions that the tests switch on, to prove that the model notices each. No build but that of the tests has
//! them.

/// Does something else than the rule if the tests have switched on this flaw.
macro_rules! flaw {
    ($flaw:ident => $wrong:expr) => {
        #[cfg(test)]
        {
            if super::flaw::Flaw::$flaw.is_on() {
                $wrong;
            }
        }
    };
}

#[cfg(test)]
pub(super) use switch::Flaw;

#[cfg(test)]
mod switch {
    use std::cell::Cell;

    thread_local! {
        static ON: Cell<Option<Flaw>> = const { Cell::new(None) };
    }

    /// A wrong decision.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in super::super) enum Flaw {
        /// A request is granted before the waiters ahead of it.
        RequestOvertakes,
        /// A waiter is served past a heavier one that does not fit.
        WaiterOvertakes,
        /// A request ignores the capacities that waiters before it name.
        RequestIgnoresLimits,
        /// Serving ignores the capacities that waiters before name.
        WaiterIgnoresLimits,
        /// The room of notified waiters is not reserved from those behind them.
        NothingReserved,
        /// A release notifies no waiter.
        ReleaseServesNone,
        /// A smaller weight notifies no waiter.
        ShrinkServesNone,
        /// A release removes the oldest hold.
        ReleasesAnother,
        /// Leases do not end.
        LeasesNeverEnd,
        /// A lease that was handed over has no short end.
        HandedNeverEnds,
        /// Silent waiters keep their places.
        WaitersNeverLapse,
        /// A renewal revives an ended lease.
        RenewalRevives,
        /// A renewal shortens a lease.
        RenewalShortens,
        /// A lease that is handed over shares the last fence.
        HandedSharesFence,
        /// An upgrade keeps its fence.
        UpgradeKeepsFence,
        /// An upgrade is granted beside another holder.
        UpgradeBesideHolder,
        /// Requests are granted while an upgrade waits.
        EntersDuringUpgrade,
        /// An upgrade that stopped asking keeps others waiting.
        UpgradeNeverLapses,
        /// A second upgrade replaces the first one.
        UpgradesReplace,
        /// A change that arrives after a later one takes effect.
        LateChangeCounts,
        /// A request of an abandoned token is granted.
        AbandonedReturns,
        /// An abandoned token keeps its place in the line.
        AbandonKeepsPlace,
        /// An abandoned token keeps its hold.
        AbandonKeepsHold,
    }

    impl Flaw {
        pub(in super::super) const ALL: [Self; 23] = [
            Self::RequestOvertakes,
            Self::WaiterOvertakes,
            Self::RequestIgnoresLimits,
            Self::WaiterIgnoresLimits,
            Self::NothingReserved,
            Self::ReleaseServesNone,
            Self::ShrinkServesNone,
            Self::ReleasesAnother,
            Self::LeasesNeverEnd,
            Self::HandedNeverEnds,
            Self::WaitersNeverLapse,
            Self::RenewalRevives,
            Self::RenewalShortens,
            Self::HandedSharesFence,
            Self::UpgradeKeepsFence,
            Self::UpgradeBesideHolder,
            Self::EntersDuringUpgrade,
            Self::UpgradeNeverLapses,
            Self::UpgradesReplace,
            Self::LateChangeCounts,
            Self::AbandonedReturns,
            Self::AbandonKeepsPlace,
            Self::AbandonKeepsHold,
        ];

        pub(in super::super) fn is_on(self) -> bool {
            ON.get() == Some(self)
        }

        /// Runs something with this flaw, on this thread.
        pub(in super::super) fn during<T>(self, run: impl FnOnce() -> T) -> T {
            ON.set(Some(self));
            let result = run();
            ON.set(None);
            result
        }
    }
}
