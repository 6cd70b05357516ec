import { artifacts } from "./image/build";
void artifacts().then((a) => { console.log(a); }, (e: unknown) => { console.error(e); process.exit(1); });
