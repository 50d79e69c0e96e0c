//! The suite against the table: what it declares, it keeps.

use std::sync::Arc;

use custom_driver_example::{Table, TableDriver};
use tenure_conformance::{
    BoxError, CaseContext, Declared, Fault, FaultKind, Harness, HarnessMaker,
    Healer,
};
use tenure_core::driver::Backend;

struct Maker;
struct World(Table);

#[async_trait::async_trait]
impl HarnessMaker for Maker {
    fn id(&self) -> &str {
        "table"
    }
    fn declared(&self) -> Declared {
        Declared::new(TableDriver::CAPABILITIES)
            .faults([FaultKind::ExpireLease])
            .virtual_time()
    }
    async fn make(&self, _: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(World(Table::default())))
    }
}

#[async_trait::async_trait]
impl Harness for World {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        Ok(TableDriver::new(self.0.clone()).into()) // each call is another client
    }
    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        let Fault::ExpireLease(name) = fault else {
            return Err(format!("{fault:?} is not declared").into());
        };
        self.0.update(&name, |row, _| row.lease = None).await;
        Ok(Healer::nothing())
    }
}

fn main() {
    tenure_conformance::main([Arc::new(Maker) as Arc<dyn HarnessMaker>])
}
