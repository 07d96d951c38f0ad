// Texts of all pages in Chinese, by their English.

import { ATTENTION } from "./chinese/attention.js";
import { LABORATORY } from "./chinese/laboratory.js";
import { LESSON } from "./chinese/lesson.js";
import { PAGE } from "./chinese/page.js";
import { WORDS } from "./chinese/words.js";

export const CHINESE = { ...ATTENTION, ...LABORATORY, ...LESSON, ...PAGE, ...WORDS };
