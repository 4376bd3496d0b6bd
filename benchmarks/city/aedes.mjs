// aedes as a broker at a loopback port: node aedes.mjs FOLDER PORT
import { createServer } from 'node:net'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [folder, port] = process.argv.slice(2)
const found = createRequire(`${folder}/package.json`).resolve('aedes')
const { Aedes } = await import(pathToFileURL(found))
const broker = await Aedes.createBroker({ concurrency: 1000, queueLimit: 100000 })
createServer(broker.handle).listen(Number(port), '127.0.0.1', 4096)
