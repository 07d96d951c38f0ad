// Texts of the service's page in Chinese, by their English.

export const PAGE = {};
