// Add a call of a task: node produce.mjs redis://127.0.0.1:6379 letters greet '{"name": "Ada"}'
import { Producer } from "./client.mjs";

const [url, queue, task, args, options = "{}"] = process.argv.slice(2);
const producer = await new Producer(url, queue).open();
console.log(await producer.addTask(task, JSON.parse(args), JSON.parse(options)));
await producer.close();
