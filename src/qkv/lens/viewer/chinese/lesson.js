// Texts of the lesson in Chinese, by their English.

export const LESSON = {};
