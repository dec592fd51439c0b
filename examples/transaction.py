"""Messages that consumers see only if the order was paid: every second one is rolled back."""

import asyncio

from lockstep.client import HalfMessage, LocalTransactionState, Message, MessageExt, TransactionProducer


class Shop(dict[str, LocalTransactionState]):  # for example a database
    def execute_local_transaction(self, message: HalfMessage, paid: bool) -> LocalTransactionState:
        state = LocalTransactionState.COMMIT_MESSAGE if paid else LocalTransactionState.ROLLBACK_MESSAGE
        return self.setdefault(message.transaction_id, state)

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState | None:
        return self.get(message.transaction_id)  # a broker asks when it got no commit or rollback


async def main() -> None:
    async with TransactionProducer("example-shop", listener=Shop()) as producer:
        for n in range(6):
            result = await producer.send_in_transaction(Message("example-paid", b"order %d" % n), n % 2 == 0)
            print(n, result.local_transaction_state.value)


asyncio.run(main())
